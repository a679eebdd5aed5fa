// What is seen, as the fragment of the address: #page=relations&layer=1&relation=3&view=attended&i=5&j=2
// Names, first values and ranges are those of Python's View.

import VIEW from "./view.json" with { type: "json" };

export const INITIAL = VIEW.initial;
const MOST_TEXT = 2 ** 20;

/** @typedef {typeof INITIAL} State */

/** @type {(fragment: string) => State} */
export function stateOf(fragment) {
  const state = { ...INITIAL };
  for (const [name, text] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    const number = text === "" ? NaN : Number(text);
    if (VIEW.counts.includes(name)) {
      if (Number.isSafeInteger(number) && number >= 0) state[name] = number;
    } else if (Object.hasOwn(VIEW.ranges, name)) {
      const [least, most] = VIEW.ranges[name];
      if (number >= least && number <= most) state[name] = number;
    } else if (Object.hasOwn(INITIAL, name)) {
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
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).pipeThrough(new TextDecoderStream("utf-8", { ignoreBOM: true })).getReader();
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
