// Colour scales: blue to orange for signed values, one hue order for others; both with rising contrast to the ground,
// and told apart with every common kind of colour blindness. Figures of the library have the same.

import SCALES from "../../../dual_attention/_base/colours.json" with { type: "json" };
import { element, written } from "./tables.js";

/** @typedef {{ theme: string, gain: number, scale?: string }} Look */
/** @typedef {{ most: number, diverging: boolean }} Scale Where a scale of colours ends, and whether it has two sides. */

const TABLE = 511; // colours from -255 to 255
const DECADES = 4; // powers of ten on a logarithmic scale; smaller values look like zero
const tables = new Map();

function mixed(stops, share) {
  const place = share * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
  return [1, 3, 5].map((from) => {
    const [a, b] = [stops[low], stops[low + 1]].map((stop) => parseInt(stop.slice(from, from + 2), 16));
    return Math.round(a + (b - a) * (place - low));
  });
}

function colourTable(theme, diverging) {
  const key = `${theme}${diverging}`;
  if (!tables.has(key)) {
    const stops = SCALES[theme][diverging ? "diverging" : "rising"];
    const table = new Uint8Array(TABLE * 3);
    for (let step = 0; step < TABLE; step++) {
      const share = diverging ? step / (TABLE - 1) : Math.max(0, step - 255) / 255;
      table.set(mixed(stops, share), step * 3);
    }
    tables.set(key, table);
  }
  return tables.get(key);
}

// Place of a value in a table of colours.
/** @type {(value: number, most: number, look: Look) => number} */
function colourStep(value, most, look) {
  let share = most > 0 ? Math.min(1, (Math.abs(value) / most) * look.gain) : 0;
  if (look.scale === "root") share = Math.sqrt(share);
  if (look.scale === "log") share = Math.max(0, 1 + Math.log10(share) / DECADES);
  return 255 + Math.sign(value) * Math.round(share * 255);
}

/** @type {(value: number, map: Scale, look: Look) => number[]} */
export function colourOf(value, map, look) {
  const table = colourTable(look.theme, map.diverging), step = colourStep(value, map.most, look) * 3;
  return [table[step], table[step + 1], table[step + 2]];
}

// A bar of colours with the values at its ends; what is between them, and what else is to be known, in words.
/** @type {(box: HTMLElement, scale: Scale, look: Look, note?: string) => void} */
export function fillScale(box, { most, diverging }, look, note = "") {
  const end = most / look.gain, bar = element("span", { className: "bar", role: "img", "aria-label": "Colour scale" });
  const colours = Array.from({ length: 65 }, (_, step) => `rgb(${colourOf((diverging ? step / 32 - 1 : step / 64) * end, { most, diverging }, look)})`);
  bar.style.background = `linear-gradient(to right, ${colours})`;
  box.replaceChildren(element("span", { text: diverging ? written(-end) : "0" }), bar, element("span", { text: written(end) }), element("span", { text: note }));
}

// Values of a grid as pixels; hidden ones are clear.
/** @type {(values: ArrayLike<number>, rows: number, columns: number, map: Scale, look: Look) => ImageData} */
export function paint(values, rows, columns, map, look) {
  const pixels = new ImageData(columns, rows), table = colourTable(look.theme, map.diverging);
  for (let place = 0; place < values.length; place++) {
    const value = values[place];
    if (value !== value) continue;
    const step = colourStep(value, map.most, look) * 3, at = place * 4;
    pixels.data[at] = table[step];
    pixels.data[at + 1] = table[step + 1];
    pixels.data[at + 2] = table[step + 2];
    pixels.data[at + 3] = 255;
  }
  return pixels;
}
