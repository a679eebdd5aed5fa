// Vision: an image, and from a patch of it the maps to all other patches.

import { unpacked } from "./arrays.js";
import { fillScale, paint } from "./colours.js";
import { Drawing } from "./drawing.js";
import { explained, withIndices } from "./explanations.js";
import { headsOf, PairMap, VIEW_NAMES } from "./maps.js";
import { nextOf } from "./state.js";
import { element, fillOptions, fillTable, get, written } from "./tables.js";

/** @import { Values } from "./arrays.js" */
/** @import { Explorer, Recording } from "./main.js" */

const PICTURE_SIDE = 320; // pixels of the longer side of the image
const MAP_SIDES = { least: 132, most: 480 }; // and of a map, as there is room
const LIKELIEST = 12;

// Pixels (height, width, channels) of a picture.
/** @type {(pixels: Values) => ImageData} */
function pictureData(pixels) {
  const [height, width, channels] = pixels.shape, data = new ImageData(width, height);
  for (let place = 0; place < width * height; place++) {
    for (let part = 0; part < 3; part++) data.data[4 * place + part] = pixels[place * channels + (channels === 3 ? part : 0)];
    data.data[4 * place + 3] = 255;
  }
  return data;
}

// Draw pixels on a canvas, each as a square; returns the pen.
function enlarged(canvas, data, side) {
  const small = document.createElement("canvas"), pen = canvas.getContext("2d");
  [small.width, small.height] = [data.width, data.height];
  small.getContext("2d").putImageData(data, 0, 0);
  [canvas.width, canvas.height] = [data.width * side, data.height * side];
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, canvas.width, canvas.height);
  return pen;
}

// A frame around a patch that is seen on dark and on light ground.
function frame(pen, { x, y, wide, high }, line) {
  for (const [style, width] of [["#ffffff", 2.5 * line], ["#000000", line]]) {
    pen.strokeStyle = style;
    pen.lineWidth = width;
    pen.strokeRect(x + line, y + line, wide - 2 * line, high - 2 * line);
  }
}

// A picture in which some patches are framed.
/** @type {(pixels: Values, grid: number[], patches: number[], side: number) => HTMLCanvasElement} */
export function framedPicture(pixels, [rows, columns], patches, side) {
  const [height, width] = pixels.shape, factor = Math.max(1, Math.round(side / Math.max(width, height))), canvas = element("canvas");
  const pen = enlarged(canvas, pictureData(pixels), factor), wide = (width * factor) / columns, high = (height * factor) / rows;
  for (const patch of patches) frame(pen, { x: (patch % columns) * wide, y: Math.floor(patch / columns) * high, wide, high }, 1);
  return canvas;
}

const mostOf = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

export class VisionPage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.explorer = explorer;
    this.canvas = get("picture");
    fillOptions(get("vision-what"), [["relations", "relations"], ["attention", "attention"]], "relations");
    get("vision-what").addEventListener("change", () => explorer.set({ maps: get("vision-what").value, layer: "", kind: "" }));
    get("vision-view").addEventListener("change", () => explorer.set({ view: get("vision-view").value }));
    get("vision-head").addEventListener("change", () => explorer.set({ head: Number(get("vision-head").value) }));
    get("vision-shared").addEventListener("click", () => explorer.set({ shared: 1 - explorer.state.shared }));
    get("class-token").addEventListener("click", () => explorer.set({ i: 0 }));
    this.canvas.addEventListener("click", (event) => {
      const box = this.canvas.getBoundingClientRect(), { grid: [rows, columns], first } = this.image;
      const row = Math.floor(((event.clientY - box.top) / box.height) * rows), column = Math.floor(((event.clientX - box.left) / box.width) * columns);
      explorer.set({ i: first + Math.min(rows - 1, row) * columns + Math.min(columns - 1, column) });
    });
    get("vision-maps").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.choose(this.maps[button.dataset.place]);
    });
  }

  isPossible() {
    return Boolean(this.explorer.recording.image);
  }

  /** @param {Recording} recording */
  load(recording) {
    this.recording = recording;
    this.image = recording.image;
    if (!this.image) return;
    this.pixels = unpacked(this.image.pixels);
    this.built = null;
    const likely = this.image.classes.filter(([, share], rank) => !rank || share >= 0.0005);
    const classes = likely.map(([name, share]) => `${name} (${(100 * share).toFixed(1)} %)`);
    get("picture-about").textContent = `${this.image.about}. Taken for class ${classes.join(", ")}.`;
  }

  resize() {
    this.show();
  }

  // Pixels of a map: those of a layer stand side by side, if they are few.
  get side() {
    const counts = this.recording.heads.map(({ place }) => this.maps.filter((map) => map.heads.place === place).length);
    return Math.min(MAP_SIDES.most, Math.max(MAP_SIDES.least, get("vision-maps").clientWidth / Math.max(...counts) - 18));
  }

  choose(map) {
    const { heads, relation, head } = map;
    this.explorer.set(relation === null ? { layer: heads.short, kind: heads.kind, head } : { layer: heads.short, relation });
  }

  // The receiver: a patch, or the class token; at first an object.
  get receiver() {
    const { grid: [rows, columns], first, chosen } = this.image, { i } = this.explorer.state;
    return i !== null && i < first + rows * columns ? i : chosen;
  }

  has(what) {
    return this.recording.heads.some((heads) => (what === "relations" ? heads.relations : heads.weights));
  }

  get what() {
    const wanted = this.explorer.state.maps === "attention" ? "attention" : "relations";
    return this.has(wanted) ? wanted : this.has("relations") ? "relations" : "attention";
  }

  build() {
    const { state } = this.explorer, key = JSON.stringify([this.what, state.view, this.what === "relations" ? state.head : null]);
    if (this.built === key) return;
    this.built = key;
    const relations = this.what === "relations", list = document.createDocumentFragment();
    this.maps = [];
    for (const heads of this.recording.heads) {
      if (!(relations ? heads.relations : heads.weights)) continue;
      const figures = element("div", { className: "maps", role: "group", "aria-label": heads.title });
      for (let number = 0; number < (relations ? heads.relations : heads.weights).maps; number++) {
        for (const from of this.fixedReceivers(heads)) {
          const map = new PairMap(heads, relations ? number : null, relations ? state.head : number, state.view);
          const whose = from === null ? "" : ` ${this.recording.sequences[heads.receivers][from]}`, canvas = element("canvas"), caption = element("span");
          figures.append(element("button", { className: "patch-map", "data-place": `${this.maps.length}` }, canvas, caption));
          this.maps.push(Object.assign(map, { canvas, caption, from, whose }));
        }
      }
      list.append(element("h2", { className: "title", text: heads.title }), figures);
    }
    get("vision-maps").replaceChildren(list);
  }

  get chosen() {
    const { state } = this.explorer, number = this.what === "relations" ? state.relation || 0 : state.head;
    const heads = headsOf(this.maps.map((map) => map.heads), state), of = this.maps.filter((map) => map.heads === heads);
    return of.find((map) => (map.relation === null ? map.head : map.relation) === number) || of[0];
  }

  // Receivers that are no patches each have a map of their own; null stands for the patch that is chosen.
  fixedReceivers(heads) {
    return heads.receivers === heads.senders ? [null] : [...heads.visible.first.keys()];
  }

  // Values of the patches of a map, and the largest of another patch, at which its scale ends: that of the patch itself may be far larger.
  valuesOf(map) {
    const { first } = this.image, from = map.from === null ? this.receiver : map.from, values = map.row(from).subarray(first);
    const others = values.filter((value, patch) => value === value && (map.from !== null || patch + first !== from)), most = mostOf(others);
    return { values, most, scale: { most: this.shared ?? most, diverging: map.diverging } };
  }

  // Where one scale of all maps ends: at the largest value, that of the patch itself included, which says how large equal is.
  get shared() {
    const { first } = this.image, rowOf = (map) => map.row(map.from === null ? this.receiver : map.from).subarray(first);
    return this.explorer.state.shared ? Math.max(...this.maps.map((map) => mostOf(rowOf(map).filter((value) => value === value)))) : null;
  }

  show() {
    const { look } = this.explorer, { grid: [rows, columns], first } = this.image;
    this.build();
    const { chosen, receiver } = this, views = chosen.heads.views(chosen.relation);
    fillOptions(get("vision-view"), views.map((view) => [view, VIEW_NAMES[view]]), chosen.view);
    fillOptions(get("vision-head"), [...Array(chosen.heads.count).keys()].map((head) => [head, head]), chosen.head);
    get("vision-note").replaceChildren(...withIndices(explained(chosen, this.recording.facts.formula)));
    get("vision-what").value = this.what;
    get("vision-what").parentElement.hidden = !(this.has("relations") && this.has("attention"));
    get("vision-head").parentElement.hidden = chosen.view !== "attended";
    get("vision-shared").setAttribute("aria-pressed", String(Boolean(this.explorer.state.shared)));
    get("class-token").hidden = first === 0;
    get("class-token").setAttribute("aria-pressed", String(receiver < first));
    const label = this.recording.sequences[chosen.heads.senders][receiver];
    this.canvas.setAttribute("aria-label", `The image in ${rows} rows and ${columns} columns of patches; ${label} is chosen. Arrow keys choose another.`);
    this.drawPicture();
    const plain = { ...look, scale: "linear" }, { side: room } = this;
    const whose = this.shared === null ? `${chosen.name}; every map has a scale of its own, which ends at the value below it, the largest of another patch` : "all maps, which ends at the largest value";
    fillScale(get("vision-scale"), this.valuesOf(chosen).scale, plain, `Scale of ${whose}.`);
    this.maps.forEach((map) => {
      const { values, most, scale } = this.valuesOf(map), side = Math.max(2, Math.floor(room / Math.max(rows, columns)));
      const pen = enlarged(map.canvas, paint(values, rows, columns, scale, plain), side);
      if (map.from === null) this.drawOutline(pen, side, side, 1);
      map.caption.textContent = `${map.name}${map.whose}, ${scale.diverging ? "±" : "≤ "}${written(most)}`;
      map.canvas.parentElement.setAttribute("aria-label", `${map.heads.title} ${map.caption.textContent}`);
      map.canvas.parentElement.setAttribute("aria-pressed", String(map === chosen));
    });
    this.showTable(chosen, label);
  }

  showTable(map, label) {
    const { values } = this.valuesOf(map), { first } = this.image, labels = this.recording.sequences[map.heads.senders];
    const order = [...values.keys()].filter((patch) => values[patch] === values[patch]).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
    fillTable(get("vision-table"), `${map.title}${map.whose || `, of ${label}`}: the largest values`, ["patch", "value"],
      order.slice(0, LIKELIEST).map((patch) => [labels[first + patch], written(values[patch])]));
  }

  // The image at a size in which its patches can be told, with the chosen one outlined.
  drawPicture() {
    const { grid: [rows, columns] } = this.image, [height, width] = this.pixels.shape;
    const factor = Math.max(1, Math.round(PICTURE_SIDE / Math.max(width, height)));
    this.drawOutline(enlarged(this.canvas, pictureData(this.pixels), factor), (width * factor) / columns, (height * factor) / rows, 2);
  }

  drawOutline(pen, wide, high, line) {
    const outline = this.outline(wide, high);
    if (outline.wide) frame(pen, outline, line);
  }

  // Where the chosen patch lies, if patches have a size; nowhere for the class token.
  outline(wide, high) {
    const { grid: [, columns], first } = this.image, patch = this.receiver - first;
    return patch < 0 ? { x: 0, y: 0, wide: 0, high: 0 } : { x: (patch % columns) * wide, y: Math.floor(patch / columns) * high, wide, high };
  }

  get exported() {
    const { chosen, receiver } = this, labels = this.recording.sequences[chosen.heads.senders], { first } = this.image;
    const title = `${this.what}${chosen.whose ? "" : ` of ${labels[receiver]}`}, ${VIEW_NAMES[chosen.view]}`;
    const rows = () => this.maps.flatMap((map) => [...this.valuesOf(map).values].flatMap((value, patch) => (
      value === value ? [[map.title, map.whose.trim() || labels[receiver], labels[first + patch], value]] : [])));
    return { title, numbers: () => ({ headings: ["map", "receiver", "sender", "value"], rows: rows() }), drawing: () => this.drawing(title) };
  }

  drawing(title) {
    const { grid: [rows, columns] } = this.image, { look } = this.explorer, side = 120 / Math.max(rows, columns), across = 6;
    const gap = 14, step = [columns * side + gap, rows * side + gap + 16], lines = Math.ceil((this.maps.length + 1) / across);
    const drawing = new Drawing(20 + across * step[0], 70 + lines * step[1], title, look.theme), plain = { ...look, scale: "linear" };
    drawing.text(10, 20, title, { "font-weight": 600 });
    const signed = this.maps.some((map) => map.diverging), { shared } = this;
    /** @type {[string, string] | undefined} */
    const ends = shared === null ? [signed ? "minus the value below each map" : "0", "the value below each map"] : undefined;
    drawing.scale(10, 30, { most: shared ?? 1, diverging: signed }, plain, ends);
    [null, ...this.maps].forEach((map, number) => {
      const left = 10 + (number % across) * step[0], top = 66 + Math.floor(number / across) * step[1];
      if (!map) {
        drawing.image(left, top, columns * side, rows * side, this.canvas);
        drawing.text(left, top + rows * side + 12, "image", { "font-size": 9 });
        return;
      }
      const { values, most, scale } = this.valuesOf(map);
      drawing.fields(left, top, columns * side, rows * side, { values, high: rows, wide: columns }, scale, plain);
      const { x, y, wide, high } = this.outline(side, side);
      if (wide && map.from === null) drawing.rect(left + x, top + y, wide, high, "none", { stroke: drawing.ink });
      drawing.text(left, top + rows * side + 12, `${map.heads.layer} ${map.name}${map.whose} ${scale.diverging ? "±" : "≤ "}${written(most)}`, { "font-size": 9 });
    });
    return drawing;
  }

  key(event) {
    const { grid: [rows, columns], first } = this.image, patch = this.receiver - first;
    const row = Math.max(0, Math.floor(patch / columns)), column = patch < 0 ? 0 : patch % columns;
    const to = (r, c) => this.explorer.set({ i: first + Math.max(0, Math.min(rows - 1, r)) * columns + Math.max(0, Math.min(columns - 1, c)) });
    const keys = {
      ArrowUp: () => to(row - 1, column), ArrowDown: () => to(row + 1, column), ArrowLeft: () => to(row, column - 1), ArrowRight: () => to(row, column + 1),
      "[": () => this.step(-1), "]": () => this.step(1),
      v: () => this.explorer.set({ view: nextOf(this.chosen.heads.views(this.chosen.relation), this.chosen.view) }),
      o: () => this.explorer.set({ shared: 1 - this.explorer.state.shared }),
      h: () => this.explorer.set({ head: (this.chosen.head + 1) % this.chosen.heads.count }),
    };
    if (!(event.key in keys)) return false;
    keys[event.key]();
    return true;
  }

  step(by) {
    this.choose(this.maps[Math.max(0, Math.min(this.maps.length - 1, this.maps.indexOf(this.chosen) + by))]);
  }
}

// The form of the image: a sample, or a file of this machine, which goes to the server on it and no further.
/** @param {Explorer} explorer */
export function listenForImages(explorer) {
  const file = get("image-file"), sample = get("sample");
  get("ask-image").hidden = false;
  fillOptions(sample, [["", "–"], ...explorer.server.samples.map((name) => [name, name])], "");
  file.addEventListener("change", () => {
    if (!file.files.length) return;
    sample.value = "";
    explorer.replace("image", file.files[0]);
  });
  sample.addEventListener("change", () => {
    if (!sample.value) return;
    file.value = "";
    explorer.replace("image", sample.value);
  });
}
