"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const STEPS = 32767;

// Integers of 16 bits in base 64.
const unpack = text => {
  const bytes = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 2 }, (_, n) => view.getInt16(2 * n, true));
};

// Values of a matrix as shares of its largest.
const shares = matrix => unpack(matrix.values).map(value => value / STEPS);

// Blue for shares of the largest value up to 1, red for those down to -1.
const colour = share => {
  const end = share >= 0 ? [33, 102, 172] : [178, 24, 43];
  return end.map(part => Math.round(255 + (part - 255) * Math.abs(share)));
};
