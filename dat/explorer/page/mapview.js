// A map on a canvas: tiles of it are computed as they come into view; tokens stand above and at the left.

import { fillScale, paint } from "./colours.js";
import { pooled } from "./maps.js";
import { work } from "./work.js";

/** @import { Labels, Pair, PairMap } from "./maps.js" */
/** @import { Look } from "./colours.js" */

// The ground of pairs that attention does not see.
function hatched(pen, ground, line) {
  const square = document.createElement("canvas"), size = 6;
  square.width = square.height = size;
  const own = square.getContext("2d");
  own.fillStyle = ground;
  own.fillRect(0, 0, size, size);
  own.strokeStyle = line;
  own.beginPath();
  for (const start of [-size, 0, size]) {
    own.moveTo(start, size);
    own.lineTo(start + size, 0);
  }
  own.stroke();
  return pen.createPattern(square, "repeat");
}

// A text that fits into a width, with dots in the place of what does not.
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && pen.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

const TILE = 64; // fields of a tile, each the strongest of a square of pairs where pairs are smaller than pixels
const MOST_TILES = 3000;
const LARGEST_CELL = 64;

export class MapView {
  /** @type {PairMap} */
  map = null;
  /** @type {Labels} */
  labels;
  /** @type {Look} */
  look;
  /** @type {{ cell: number | null, x: number, y: number }} */
  frame;
  /** @type {Pair} */
  chosen;
  colours = "";

  constructor(figure, on) {
    this.figure = figure;
    this.canvas = figure.querySelector("canvas");
    this.caption = figure.querySelector("figcaption");
    this.on = on;
    this.tiles = new Map();
    this.wanted = new Set();
    this.drawing = false;
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    this.listen();
  }

  /** @type {(map: PairMap, labels: Labels, look: Look, frame: MapView["frame"], chosen: Pair, model?: string) => void} */
  show(map, labels, look, frame, chosen, model = "") {
    const colours = JSON.stringify([look, map.most]);
    if (!this.map || this.map.key !== map.key || this.map.heads !== map.heads || this.labels !== labels) {
      this.tiles.clear();
      this.wanted.clear();
    } else if (colours !== this.colours) {
      for (const tile of this.tiles.values()) tile.picture = null;
    }
    Object.assign(this, { map, labels, look, frame, chosen, colours });
    this.canvas.style.touchAction = frame.cell === null ? "auto" : "none"; // a map that fits leaves swipes to the page
    const title = (this.caption.textContent = `${model && `${model}: `}${map.title}`);
    const pair = chosen.i === null ? "" : ` Chosen: receiver ${chosen.i}, sender ${chosen.j}.`;
    const seen = `${map.n} receivers, from top to bottom, and ${map.m} senders, from left to right.`;
    this.canvas.setAttribute("aria-label", `${title}: ${seen}${pair} The table beside holds the largest values.`);
    if (map.most !== null) {
      const pixel = this.pool > 1 ? ` Each pixel is the strongest of ${this.pool} × ${this.pool} pairs.` : "";
      fillScale(this.figure.querySelector(".scale"), map, look, `Hatched pairs are hidden from attention.${pixel}`);
    }
    this.draw();
  }

  // Pairs along a side of the square that a pixel stands for.
  get pool() {
    let pool = 1;
    while (pool * this.cell * (window.devicePixelRatio || 1) < 1) pool *= 2;
    return pool;
  }

  // Sizes in pixels of the page: of the canvas, of the gutters of labels, and of a cell if all are to be seen.
  get size() {
    const box = this.canvas.parentElement.getBoundingClientRect();
    return { width: Math.max(60, box.width), height: Math.max(60, box.height), left: 88, top: 84 };
  }

  get fit() {
    const { width, height, left, top } = this.size;
    return Math.min(LARGEST_CELL, (width - left) / this.map.m, (height - top) / this.map.n);
  }

  get cell() {
    return this.frame.cell === null ? this.fit : Math.max(this.fit, Math.min(LARGEST_CELL, this.frame.cell));
  }

  // First pair in view, so that the map is never out of it.
  get corner() {
    const { width, height, left, top } = this.size, { cell } = this;
    const within = (start, cells, room) => Math.max(0, Math.min(start, cells - room / cell));
    return { x: within(this.frame.x, this.map.m, width - left), y: within(this.frame.y, this.map.n, height - top) };
  }

  // The pairs in view: rows r0 to r1, columns c0 to c1.
  get window() {
    const { width, height, left, top } = this.size, { cell } = this, { x, y } = this.corner;
    return {
      r0: Math.floor(y), r1: Math.min(this.map.n, Math.ceil(y + (height - top) / cell)),
      c0: Math.floor(x), c1: Math.min(this.map.m, Math.ceil(x + (width - left) / cell)),
    };
  }

  pairAt(event) {
    const box = this.canvas.getBoundingClientRect(), { left, top } = this.size, { x, y } = this.corner;
    const j = Math.floor(x + (event.clientX - box.left - left) / this.cell);
    const i = Math.floor(y + (event.clientY - box.top - top) / this.cell);
    return {
      i: i >= 0 && i < this.map.n && event.clientY - box.top >= top ? i : null,
      j: j >= 0 && j < this.map.m && event.clientX - box.left >= left ? j : null,
    };
  }

  zoom(factor, about = null) {
    const { width, height, left, top } = this.size, { x, y } = this.corner, before = this.cell;
    const cell = Math.max(this.fit, Math.min(LARGEST_CELL, before * factor));
    const at = about || { x: (width - left) / 2, y: (height - top) / 2 };
    this.on.frame({
      cell: cell <= this.fit ? null : cell,
      x: Math.max(0, x + at.x / before - at.x / cell), y: Math.max(0, y + at.y / before - at.y / cell),
    });
  }

  // Move the frame so that a pair is within it.
  reveal(i, j) {
    const { width, height, left, top } = this.size, { cell } = this, { x, y } = this.corner;
    const into = (start, place, room) => (place < start ? place : place + 1 > start + room / cell ? place + 1 - room / cell : start);
    const moved = { x: into(x, j, width - left), y: into(y, i, height - top) };
    if (moved.x !== x || moved.y !== y) this.on.frame({ ...this.frame, ...moved });
  }

  listen() {
    const { canvas } = this;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, corner: this.corner, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag) return this.on.hover(this.pairAt(event));
      const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
      if (!drag.moved && Math.hypot(dx, dy) < 4) return undefined;
      drag.moved = true;
      const { corner } = drag;
      return this.on.frame({ ...this.frame, x: Math.max(0, corner.x - dx / this.cell), y: Math.max(0, corner.y - dy / this.cell) });
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) this.on.choose(this.pairAt(event));
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => (drag = null));
    canvas.addEventListener("pointerleave", () => this.on.hover({ i: null, j: null }));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect(), { left, top } = this.size;
      const about = { x: Math.max(0, event.clientX - box.left - left), y: Math.max(0, event.clientY - box.top - top) };
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), about);
    }, { passive: false });
  }

  draw() {
    if (this.drawing || !this.map) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      if (!this.figure.hidden && this.canvas.offsetParent) this.render();
    });
  }

  render() {
    const { width, height, left, top } = this.size, ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(`--${name}`).trim();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = ink("ground");
    pen.fillRect(0, 0, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(left, top, width - left, height - top);
    pen.clip();
    this.drawTiles(pen, ink, ratio);
    this.drawCross(pen, ink);
    pen.restore();
    this.drawLabels(pen, ink);
  }

  drawTiles(pen, ink, ratio) {
    const { left, top } = this.size, { cell, map } = this, { x, y } = this.corner, { r0, r1, c0, c1 } = this.window;
    pen.fillStyle = hatched(pen, ink("hidden"), ink("edge"));
    pen.fillRect(left - x * cell, top - y * cell, map.m * cell, map.n * cell);
    pen.imageSmoothingEnabled = cell * ratio < 1;
    const { pool } = this, span = TILE * pool;
    if (map.most === null || !map.ready) return; // it is being measured, or on its way
    for (let row = Math.floor(r0 / span); row * span < r1; row++) {
      for (let column = Math.floor(c0 / span); column * span < c1; column++) {
        const key = `${pool}:${row}:${column}`, tile = this.tiles.get(key);
        if (!tile) {
          this.want(key, pool, row * span, column * span);
          continue;
        }
        const wide = tile.c1 - tile.c0, high = tile.r1 - tile.r0;
        pen.drawImage(this.picture(tile), left + (tile.c0 - x) * cell, top + (tile.r0 - y) * cell, wide * cell, high * cell);
      }
    }
  }

  want(key, pool, r0, c0) {
    if (this.wanted.has(key)) return;
    this.wanted.add(key);
    const { map } = this;
    work.add(() => {
      if (!this.wanted.delete(key) || this.map.key !== map.key || this.map.heads !== map.heads) return;
      const w = this.window;
      if (r0 >= w.r1 || c0 >= w.c1 || r0 + TILE * pool <= w.r0 || c0 + TILE * pool <= w.c0) return; // no longer seen
      const r1 = Math.min(map.n, r0 + TILE * pool), c1 = Math.min(map.m, c0 + TILE * pool);
      const rows = Math.ceil((r1 - r0) / pool), columns = Math.ceil((c1 - c0) / pool);
      let values;
      if (pool === 1) map.fill(r0, r1, c0, c1, (values = new Float32Array(rows * columns)));
      else values = pooled(map, r0, r1, c0, c1, rows, columns);
      if (this.tiles.size > MOST_TILES) this.tiles.clear();
      this.tiles.set(key, { r0, r1, c0, c1, rows, columns, values, picture: null });
      this.draw();
    }, true);
  }

  picture(tile) {
    if (!tile.picture) {
      tile.picture = document.createElement("canvas");
      tile.picture.width = tile.columns;
      tile.picture.height = tile.rows;
      tile.picture.getContext("2d").putImageData(paint(tile.values, tile.rows, tile.columns, this.map, this.look), 0, 0);
    }
    return tile.picture;
  }

  drawCross(pen, ink) {
    const { left, top } = this.size, { cell, map } = this, { x, y } = this.corner, { i, j } = this.chosen;
    pen.strokeStyle = ink("accent");
    pen.lineWidth = 1.5;
    const high = Math.max(cell, 3), edge = (high - cell) / 2;
    if (i !== null) pen.strokeRect(left - x * cell, top + (i - y) * cell - edge, map.m * cell, high);
    if (j !== null) pen.strokeRect(left + (j - x) * cell - edge, top - y * cell, high, map.n * cell);
  }

  drawLabels(pen, ink) {
    const { left, top } = this.size, { cell } = this, { x, y } = this.corner, { r0, r1, c0, c1 } = this.window;
    const every = Math.max(1, Math.ceil(13 / cell));
    const font = '12px system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';
    pen.font = font;
    pen.textBaseline = "middle";
    const one = (text, place, chosen, across) => {
      const shown = fitted(pen, text, (across ? top : left) - 14);
      pen.save();
      if (across) {
        pen.translate(left + (place + 0.5 - x) * cell, top - 8);
        pen.rotate(-Math.PI / 2);
        pen.textAlign = "left";
      } else {
        pen.translate(left - 8, top + (place + 0.5 - y) * cell);
        pen.textAlign = "right";
      }
      if (chosen) {
        const wide = pen.measureText(shown).width + 6;
        pen.fillStyle = ink("accent");
        pen.fillRect(across ? -3 : -wide + 3, -8, wide, 16);
      }
      pen.fillStyle = ink(chosen ? "accent-ink" : every > 1 ? "faint" : "ink");
      pen.fillText(shown, 0, 1);
      pen.restore();
    };
    const numbered = (label, place) => (every > 1 && !/^row \d/.test(label) ? `${place} ${label}` : label); // a patch names its place
    const axis = (from, to, labels, chosen, across) => {
      const room = (place) => (across ? left + (place + 0.5 - x) * cell >= left : top + (place + 0.5 - y) * cell >= top);
      for (let place = Math.ceil(from / every) * every; place < to; place += every) {
        const near = chosen !== null && Math.abs(place - chosen) * cell < 14;
        if (!near && room(place)) one(numbered(labels[place], place), place, false, across);
      }
      if (chosen !== null && chosen >= from && chosen < to) {
        one(numbered(labels[chosen], chosen), chosen, true, across);
      }
    };
    axis(r0, r1, this.labels.receivers, this.chosen.i, false);
    axis(c0, c1, this.labels.senders, this.chosen.j, true);
    pen.fillStyle = ink("faint");
    pen.textAlign = "right";
    pen.fillText("receiver ↓", left - 6, top - 38);
    pen.fillText("sender →", left - 6, top - 22);
  }
}
