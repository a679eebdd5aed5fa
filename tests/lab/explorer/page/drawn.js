// What laws are tried on: numbers and texts that look random and are the same in every run.

/** @param {number} seed */
export function drawing(seed) {
  let state = seed;
  const number = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  const below = (end) => Math.floor(number() * end), one = (list) => list[below(list.length)];
  const text = (letters, most) => Array.from({ length: below(most + 1) }, () => one(letters)).join("");
  return { number, below, one, text };
}
