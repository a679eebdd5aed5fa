// What is seen, as the fragment of the address: #page=relations&layer=1&relation=3&view=attended&i=5&j=2

export const INITIAL = {
  page: "relations", layer: "", kind: "", relation: null, head: 0, view: "raw", scale: "fitting", contrast: 0, i: null, j: null,
  cell: null, x: 0, y: 0, theme: "system", pinned: null, part: 0, symbol: null, off: "", change: "zero", factor: 2, place: null,
  maps: "relations", shared: 0, letters: 1, tokens: 40, temperature: 0.8, top_k: 0, seed: 0, map: 0, step: null, end: "high",
  generated: 0, dictionary: 0, draws: 5, measure: "kl", ablated: 0, text: "", weights: "", own: 0,
};
const COUNTED = ["relation", "head", "i", "j", "part", "symbol", "place", "tokens", "top_k", "seed", "map", "step", "shared", "letters", "generated", "dictionary", "draws", "ablated", "own"];
const MEASURED = { contrast: [0, 6], factor: [-100, 100], temperature: [0, 100], cell: [0.001, 1000], x: [0, 1e9], y: [0, 1e9] };
const MOST_TEXT = 2 ** 20;

/** @typedef {typeof INITIAL} State */

/** @type {(fragment: string) => State} */
export function stateOf(fragment) {
  const state = { ...INITIAL };
  for (const [name, text] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    const number = text === "" ? NaN : Number(text);
    if (COUNTED.includes(name)) {
      if (Number.isSafeInteger(number) && number >= 0) state[name] = number;
    } else if (name in MEASURED) {
      const [least, most] = MEASURED[name];
      if (number >= least && number <= most) state[name] = number;
    } else if (name in INITIAL) {
      state[name] = text;
    }
  }
  return state;
}

/** @type {(state: Partial<State>) => string} */
export function fragmentOf(state) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== null && value !== INITIAL[name]) found.set(name, typeof value === "number" && !Number.isInteger(value) ? +value.toPrecision(6) : value);
  }
  return `#${found}`;
}

// A text as the address holds it: deflated, in the letters of base64 that addresses allow.
/** @type {(text: string) => Promise<string>} */
export async function packedText(text) {
  const deflated = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(deflated).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replace(/[+/=]/g, (sign) => ({ "+": "-", "/": "_" })[sign] || "");
}

/** @type {(packed: string) => Promise<string>} */
export async function unpackedText(packed) {
  try {
    const bytes = Uint8Array.from(atob(packed.replace(/[-_]/g, (sign) => (sign === "-" ? "+" : "/"))), (letter) => letter.charCodeAt(0));
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; text.length <= MOST_TEXT;) {
      const { done, value } = await reader.read();
      if (done) return text;
      text += value;
    }
  } catch {
    // as one that is too long
  }
  throw new Error("The address does not lead to its view: the text in it is damaged.");
}

/** @type {<T>(list: T[], now: T) => T} */
export const nextOf = (list, now) => list[(list.indexOf(now) + 1) % list.length];
