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

// A colour between those of the scale, STOPS: blue for shares of the largest value down to -1, orange for those up to 1.
const colour = share => {
  const place = (share + 1) / 2 * (STOPS.length - 1), low = Math.max(0, Math.min(Math.floor(place), STOPS.length - 2));
  const part = (stop, at) => parseInt(STOPS[stop].slice(at, at + 2), 16);
  return [1, 3, 5].map(at => Math.round(part(low, at) + (part(low + 1, at) - part(low, at)) * (place - low)));
};
