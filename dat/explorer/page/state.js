// What is seen, as the fragment of the address: #page=relations&layer=1&relation=3&view=attended&i=5&j=2

const INITIAL = {
  page: "relations", layer: "", kind: "", relation: null, head: 0, view: "raw", scale: "fitting", contrast: 0, i: null, j: null,
  cell: null, x: 0, y: 0, theme: "system", pinned: null, part: 0, symbol: null, off: "", change: "zero", factor: 2, place: null,
  maps: "relations", tokens: 40, temperature: 0.8, top_k: 0, seed: 0, map: 0, step: null, end: "high",
};
const COUNTED = ["relation", "head", "i", "j", "part", "symbol", "place", "tokens", "top_k", "seed", "map", "step"];
const MEASURED = { contrast: [0, 6], factor: [-100, 100], temperature: [0, 100], cell: [0.001, 1000], x: [0, 1e9], y: [0, 1e9] };

function stateOf(fragment) {
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

function fragmentOf(state) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== null && value !== INITIAL[name]) found.set(name, typeof value === "number" && !Number.isInteger(value) ? +value.toPrecision(6) : value);
  }
  return `#${found}`;
}

const nextOf = (list, now) => list[(list.indexOf(now) + 1) % list.length];
