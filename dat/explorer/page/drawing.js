// Drawings in SVG, for the page, for files, and as pictures.

import { colourOf, paint } from "./colours.js";
import { element, written } from "./tables.js";

/** @import { Look, Scale } from "./colours.js" */
/** @import { Labels } from "./maps.js" */

/** @typedef {{ values: Float32Array, high: number, wide: number }} Grid Values row by row; hidden ones are not numbers. */

export const MOST_FIELDS = 40000; // drawn as squares; more are pixels
export const LONGEST = 1024; // side of a map in a picture

const INKS = {
  light: { ink: "#1d1c1a", ground: "#fbfaf8", faint: "#66635c", edge: "#d9d6cf", hidden: "#efede8", marks: ["#8d8a83", "#0b5fa5", "#c46a14"] },
  dark: { ink: "#eceae5", ground: "#16171a", faint: "#a5a29b", edge: "#3a3d44", hidden: "#2a2c31", marks: ["#8b8880", "#79b8f3", "#f0a24a"] },
};
const FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';

const escaped = (text) => `${text}`.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
// XML has no characters for most control codes, and none for half of a pair.
const allowed = (text) => `${text}`.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd").replace(/\p{Cs}/gu, "\ufffd");

export class Drawing {
  width; height; title; ink; ground; faint; edge; hidden; marks;
  parts = [];

  /** @type {(width: number, height: number, title: string, theme: string) => Drawing} */
  constructor(width, height, title, theme) {
    Object.assign(this, { width, height, title }, INKS[theme]);
  }

  add(tag, attributes, content = "") {
    const inTag = Object.entries(attributes).map(([name, value]) => ` ${name}="${escaped(typeof value === "number" ? +value.toFixed(2) : value)}"`);
    this.parts.push(`<${tag}${inTag.join("")}>${content}</${tag}>`);
  }

  text(x, y, text, attributes = {}) {
    this.add("text", { x, y, fill: this.ink, ...attributes }, escaped(allowed(text)));
  }

  rect(x, y, width, height, fill, attributes = {}) {
    this.add("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), fill, ...attributes });
  }

  line(x1, y1, x2, y2, attributes = {}) {
    this.add("line", { x1, y1, x2, y2, stroke: this.edge, ...attributes });
  }

  // A bar of colours, with what stands at its ends.
  scale(x, y, scale, look, [low, high] = [scale.diverging ? written(-scale.most / look.gain) : "0", written(scale.most / look.gain)]) {
    const steps = 64, wide = 2.5, before = 7 * low.length + 6;
    for (let step = 0; step < steps; step++) {
      const share = step / (steps - 1), value = ((scale.diverging ? 2 * share - 1 : share) * scale.most) / look.gain;
      this.rect(x + before + step * wide, y, wide + 0.3, 11, `rgb(${colourOf(value, scale, look)})`, { class: "scale" });
    }
    this.text(x, y + 10, low, { "font-size": 11 });
    const kind = { root: ", square root", log: ", logarithm" }[look.scale] || "";
    this.text(x + before + steps * wide + 6, y + 10, high + kind, { "font-size": 11 });
  }

  image(x, y, width, height, canvas) {
    this.add("image", { x, y, width, height, href: canvas.toDataURL(), preserveAspectRatio: "none" });
  }

  // The fields of a grid over a rectangle: squares, or pixels where they are many.
  /** @type {(x: number, y: number, width: number, height: number, grid: Grid, scale: Scale, look: Look) => void} */
  fields(x, y, width, height, { values, high, wide }, scale, look) {
    this.rect(x, y, width, height, this.hidden);
    if (values.length > MOST_FIELDS) {
      const canvas = element("canvas", { width: wide, height: high });
      canvas.getContext("2d").putImageData(paint(values, high, wide, scale, look), 0, 0);
      this.image(x, y, width, height, canvas);
      return;
    }
    const [across, down] = [width / wide, height / high];
    values.forEach((value, place) => {
      if (value !== value) return;
      this.rect(x + (place % wide) * across, y + Math.floor(place / wide) * down, across, down, `rgb(${colourOf(value, scale, look)})`, { "shape-rendering": "crispEdges" });
    });
  }

  toString() {
    const { width, height } = this;
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" font-family="${escaped(FONT)}" font-size="12">`,
      `<title>${escaped(allowed(this.title))}</title>`, `<rect width="100%" height="100%" fill="${this.ground}"/>`, ...this.parts, "</svg>\n",
    ].join("\n");
  }

  // The drawing as an element of the page.
  get element() {
    const parsed = new DOMParser().parseFromString(this.toString(), "image/svg+xml");
    return document.importNode(parsed.documentElement, true);
  }
}

// A map as a drawing, with title, scale, and labels above and at the left, for papers.
/** @type {(title: string, labels: Labels, grid: Grid, scale: Scale, look: Look, note?: string) => Drawing} */
export function mapDrawing(title, { receivers, senders }, grid, scale, look, note = "") {
  const [rows, columns] = [receivers.length, senders.length], size = Math.min(12, LONGEST / Math.max(rows, columns)), every = Math.ceil(10 / size);
  const short = (text) => [...text].slice(0, 16).join(""), longest = Math.max(...senders.map((label) => [...short(label)].length));
  const left = 110, top = 74 + 5 * longest, small = { "font-size": 9.6 }, drawing = new Drawing(Math.max(480, left + columns * size + 16), top + rows * size + 16, title, look.theme);
  drawing.text(10, 20, title, { "font-weight": 600 });
  drawing.scale(10, 32, scale, look);
  if (note) drawing.text(10, 60, note, small);
  drawing.text(left - 4, top - 8, "receiver ↓ sender →", { "text-anchor": "end", fill: drawing.faint, ...small });
  for (let j = 0; j < columns; j += every) drawing.text(0, 0, short(senders[j]), { transform: `translate(${left + (j + 0.5) * size + 3},${top - 4}) rotate(-90)`, ...small });
  for (let i = 0; i < rows; i += every) drawing.text(left - 4, top + (i + 0.5) * size + 3, short(receivers[i]), { "text-anchor": "end", ...small });
  drawing.fields(left, top, columns * size, rows * size, grid, scale, look);
  return drawing;
}

// A table as a drawing: a page that has no figure of its own is saved as the table that it shows.
export function tableDrawing({ caption, headings, rows }, theme) {
  const size = 18, columns = headings.map((_, place) => 24 + 7 * Math.max(...[headings, ...rows].map((row) => Math.min(60, [...`${row[place]}`].length))));
  const width = columns.reduce((sum, wide) => sum + wide, 20), drawing = new Drawing(width, (rows.length + 2) * size + 20, caption, theme);
  drawing.text(10, 20, caption, { "font-weight": 600 });
  [headings, ...rows].forEach((row, line) => {
    let x = 10;
    row.forEach((content, place) => {
      drawing.text(x, (line + 2) * size + 6, [...`${content}`].slice(0, 60).join(""), line ? {} : { fill: drawing.faint });
      x += columns[place];
    });
    drawing.line(10, (line + 2) * size + 11, width - 10, (line + 2) * size + 11);
  });
  return drawing;
}

// Named values as bars from zero, a line each.
/** @type {(title: string, rows: [string, number][], shown: (value: number) => string, theme: string) => Drawing} */
export function barDrawing(title, rows, shown, theme) {
  const left = 250, wide = 640, right = 62, high = 20, top = 36, values = rows.map(([, value]) => value);
  const drawing = new Drawing(wide, top + rows.length * high + 10, title, theme), { marks } = drawing;
  const least = Math.min(0, ...values), most = Math.max(0, ...values), start = left + (least < 0 ? right : 0);
  const x = (value) => start + ((wide - start - right) * (value - least)) / (most - least || 1);
  drawing.text(10, 20, title, { "font-weight": 600 });
  rows.forEach(([name, value], number) => {
    const y = top + number * high;
    drawing.text(left - 10, y + 12, name, { "text-anchor": "end" });
    drawing.rect(x(Math.min(0, value)), y + 2, Math.abs(x(value) - x(0)), 12, marks[value < 0 ? 1 : 2]);
    drawing.text(x(value) + (value < 0 ? -5 : 5), y + 12, shown(value), { "text-anchor": value < 0 ? "end" : "start", fill: drawing.faint, "font-size": 11 });
  });
  drawing.line(x(0), top - 4, x(0), top + rows.length * high, { stroke: drawing.faint });
  return drawing;
}
