// The pages of relations and of attention: thumbnails, one map, and the text with links.

import { explained, withIndices } from "./explanations.js";
import { pairDrawing, pairRows } from "./exports.js";
import { Gallery } from "./gallery.js";
import { Links } from "./links.js";
import { DifferenceMap, headsOf, onlyIn, PairMap, sameMap, VIEW_NAMES } from "./maps.js";
import { MapView } from "./mapview.js";
import { fragmentOf, INITIAL, nextOf, stateOf } from "./state.js";
import { get, written } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */
/** @import { State } from "./state.js" */

const SCALE_NAMES = ["linear", "root", "log"];

export class PairPage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.explorer = explorer;
    this.hovered = { i: null, j: null };
    const chooses = { hover: (pair) => this.hover(pair), choose: (pair) => this.choose(pair), frame: (frame) => this.set(frame) };
    this.view = new MapView(get("main-map"), chooses);
    this.pinnedView = new MapView(get("pinned-map"), chooses);
    this.links = new Links(chooses);
    this.gallery = new Gallery(get("gallery"), { choose: (thumb) => this.chooseMap(thumb) });
    this.listen();
  }

  /** @param {Recording} recording */
  load(recording) {
    this.recording = recording;
    get("links").classList.toggle("apart", recording.reads === "image"); // labels of patches are words
    this.labels = new Map(); // one object for each pair of sequences, so that views know when nothing has changed
    this.galleryOf = null;
    this.begun = false;
    const [a, b] = this.explorer.recordings.map(({ heads }) => heads), said = (name, parts) => (parts.length ? `Only in ${name}: ${parts.join(", ")}.` : "");
    get("beside-note").hidden = !b;
    if (b) get("beside-note").textContent = [said("A", onlyIn(a, b)), said("B", onlyIn(b, a))].filter(Boolean).join(" ") || "Both models have the same heads and relations.";
  }

  // The same map of the other model, if there is one.
  /** @type {(map: PairMap) => PairMap | null} */
  beside(map) {
    const { recordings, which } = this.explorer, other = recordings[1 - which];
    return other ? sameMap(map, other.heads) : null;
  }

  // A map of the model that is shown, or how far that of the second one differs.
  differing(map) {
    const second = map && this.state.model === 2 ? this.beside(map) : null;
    return second ? new DifferenceMap(second, map) : map;
  }

  isPossible(name) {
    return this.candidates(name).length > 0;
  }

  get state() {
    return this.explorer.state;
  }

  get name() {
    return this.explorer.page;
  }

  /** @param {Partial<State>} change */
  set(change) {
    this.explorer.set(change);
  }

  // Unless one is chosen: attention is concentrated on few pairs, relations are not.
  lookOf(map) {
    const { scale } = this.state, fitting = map && map.view === "raw" ? "linear" : "root";
    return { ...this.explorer.look, scale: SCALE_NAMES.includes(scale) ? scale : fitting };
  }

  get look() {
    return this.lookOf(this.map);
  }

  // The heads of this page: with relations, or those that attend.
  candidates(name) {
    return this.withMaps(name).filter((heads) => heads.here);
  }

  withMaps(name) {
    return this.recording.heads.filter((heads) => (name === "relations" ? heads.relations : heads.weights));
  }

  mapOf(state, page = this.name) {
    const heads = headsOf(this.candidates(page), state);
    if (!heads) return null;
    const relation = page === "relations" ? Math.min(state.relation || 0, heads.relations.maps - 1) : null;
    return this.differing(new PairMap(heads, relation, Math.max(0, state.head), state.view));
  }

  labelsOf(map) {
    const { receivers, senders } = map.heads, key = JSON.stringify([receivers, senders]);
    if (!this.labels.has(key)) {
      const { sequences } = this.recording;
      this.labels.set(key, { receivers: sequences[receivers], senders: sequences[senders] });
    }
    return this.labels.get(key);
  }

  get chosen() {
    const within = (place, count) => (place !== null && place >= 0 && place < count ? Math.floor(place) : null);
    const hovered = this.hovered.i !== null || this.hovered.j !== null;
    const { i, j } = hovered ? this.hovered : this.state;
    return { i: within(i, this.map.n), j: within(j, this.map.m) };
  }

  show() {
    get("pair-page").setAttribute("aria-labelledby", `tab-${this.name}`);
    const before = this.map, wanted = headsOf(this.withMaps(this.name), this.state);
    this.map = this.mapOf(this.state);
    this.map.holdAs(before);
    if (!wanted.here) this.explorer.complain(`This file holds the maps ${this.recording.facts.maps}; dat explore --view shows those of ${wanted.layer}.`);
    this.showGallery();
    this.map.end = this.end;
    this.showControls();
    this.showMap();
    this.begin();
  }

  // Choose a pair once for each text, unless there is one; of an image, of the patch that its page begins with.
  begin() {
    if (this.begun) return;
    this.begun = true;
    const { map, recording, state } = this, { receivers, senders } = map.heads;
    const isFree = () => this.state === state && this.recording === recording && this.map.heads === map.heads && this.state.i === null && this.state.j === null;
    if (isFree()) map.strongest(recording.image && receivers === senders ? recording.image.chosen : null, (pair) => isFree() && this.set(pair));
  }

  // Thumbnails of all maps in the view that is chosen.
  showGallery() {
    const { name: page, look, map: { view, through, head } } = this;
    const key = JSON.stringify([page, view, page === "relations" && through ? head : null, this.state.model]);
    if (this.galleryOf !== key) {
      const choices = this.candidates(page).flatMap((heads) => {
        const count = page === "relations" ? heads.relations.maps : heads.count;
        return [...Array(count).keys()].map((number) => ({
          number, map: this.differing(new PairMap(heads, page === "relations" ? number : null, page === "relations" ? head : number, view)),
        }));
      });
      this.gallery.show(choices, look);
      this.galleryOf = key;
    }
    this.gallery.recolour(look, this.end);
    this.gallery.mark(this.map.heads.place, this.map.relation === null ? this.map.head : this.map.relation);
  }

  // Where the scale of all maps ends, if they have one: at the largest value of those that have been measured.
  get end() {
    if (!this.state.shared) return null;
    const maps = this.gallery.thumbs.map((thumb) => thumb.map);
    for (const map of maps) map.measure(() => this.showSoon(), false);
    return maps.reduce((most, map) => Math.max(most, map.largest || 0), 0) || null;
  }

  // Maps are measured faster than all of them are coloured.
  showSoon() {
    this.soon ||= setTimeout(() => {
      this.soon = 0;
      if (this.explorer.pages[this.explorer.page] === this) this.show();
    }, 100);
  }

  showControls() {
    const { map, state } = this, views = map.heads.views(map.relation);
    const shown = JSON.stringify([views, map.view]);
    if (this.viewsShown !== shown) {
      this.viewsShown = shown;
      get("view-choice").replaceChildren(get("view-choice").firstElementChild, ...views.map((view) => {
        const label = document.createElement("label"), input = document.createElement("input");
        Object.assign(input, { type: "radio", name: "view", value: view, checked: view === map.view });
        input.addEventListener("change", () => this.set({ view }));
        label.append(input, VIEW_NAMES[view]);
        return label;
      }));
    }
    const heads = map.heads.count, select = get("head");
    get("head-choice").hidden = map.view !== "attended" || map.heads.relationOfHead;
    if (select.options.length !== heads) select.replaceChildren(...[...Array(heads).keys()].map((head) => new Option(`${head}`)));
    select.value = map.head;
    const rounding = map instanceof DifferenceMap ? map.rounding : null, most = rounding === null ? "" : ` Rounding adds at most ${written(rounding)}.`;
    get("map-note").replaceChildren(...withIndices(`${map instanceof DifferenceMap ? "B − A of " : ""}${explained(map, this.recording.facts.formula)}${most}`));
    get("scale").value = this.look.scale;
    get("contrast").value = state.contrast;
    get("pin").setAttribute("aria-pressed", String(state.pinned !== null));
    get("shared").setAttribute("aria-pressed", String(Boolean(state.shared)));
  }

  showMap() {
    const { map, state, look, chosen } = this, labels = this.labelsOf(map);
    const frame = { cell: state.cell, x: state.x, y: state.y };
    map.measure(() => this.showSoon(), true);
    if (!map.ready) map.whenReady(() => this.showSoon());
    const { other, name } = this.second(), fits = other && other.n === map.n && other.m === map.m, differs = map instanceof DifferenceMap;
    get("pinned-map").hidden = !fits;
    if (fits) {
      other.holdAs(this.pinnedMap);
      other.measure(() => this.showSoon(), true);
      if (!other.ready) other.whenReady(() => this.showSoon());
      if (name && !differs && map.diverging === other.diverging && map.most !== null && other.largest !== null) map.end = Math.max(map.most, other.largest);
      if (other.view === map.view && differs === other instanceof DifferenceMap) other.end = map.end;
      this.pinnedView.show(other, this.labelsOf(other), this.lookOf(other), frame, chosen, name);
    }
    this.pinnedMap = fits ? other : null;
    this.pinnedName = fits ? name : "";
    this.view.show(map, labels, look, frame, chosen, name && !differs ? "AB"[this.explorer.which] : "");
    if (!map.ready) {
      get("readout").textContent = "The map is on its way.";
      return;
    }
    this.showReadout(labels);
    clearTimeout(this.linking); // while the pointer moves fast, thousands of tokens need not change colour each time
    const links = () => this.links.show(map, labels, look, chosen);
    if (this.links.map === undefined || map.m <= 256) links();
    else this.linking = setTimeout(links, 40);
  }

  // The map at the side: the one that is pinned, or else the same of the other model, with the name of that.
  second() {
    const { state, map } = this, pinned = state.pinned !== null && stateOf(state.pinned);
    if (pinned) return { other: this.mapOf({ ...state, ...pinned }, pinned.page === "attention" ? "attention" : "relations"), name: "" };
    if (this.explorer.recordings.length < 2) return { other: null, name: "" };
    return map instanceof DifferenceMap ? { other: map.first, name: "A" } : { other: this.beside(map), name: "AB"[1 - this.explorer.which] };
  }

  showReadout(labels) {
    const { map, chosen: { i, j } } = this;
    const parts = [];
    if (i !== null && j !== null) {
      const value = (one) => (!one.visible(i, j) ? "hidden" : one.ready ? written(one.value(i, j)) : "…");
      parts.push(`receiver ${i} ${labels.receivers[i]} ← sender ${j} ${labels.senders[j]}: ${value(map)}`);
      if (this.pinnedMap) parts.push(`${this.pinnedName || "beside it"} ${value(this.pinnedMap)}`);
      else if (this.explorer.recordings.length > 1 && this.state.pinned === null) parts.push("the other model has no such map");
    }
    if (i !== null && !(map instanceof DifferenceMap)) {
      const { relations, symbols, all } = map.heads.messages, at = map.head * map.n + i;
      const norm = (values) => written(values[at]);
      if (relations) parts.push(`head ${map.head} brings receiver ${i} relations of length ${norm(relations)}, symbols of ${norm(symbols)}`);
      else if (all) parts.push(`head ${map.head} brings receiver ${i} a message of length ${norm(all)}`);
    }
    get("readout").textContent = parts.join(" · ");
  }

  hover(pair) {
    if (pair.i === this.hovered.i && pair.j === this.hovered.j) return;
    this.hovered = pair;
    if (this.hovering) return;
    this.hovering = true;
    requestAnimationFrame(() => {
      this.hovering = false;
      if (this.map && !get("pair-page").hidden) this.showMap();
    });
  }

  choose({ i, j }) {
    const same = i === this.state.i && j === this.state.j;
    this.set(same ? { i: null, j: null } : { i, j });
  }

  chooseMap(thumb) {
    const { heads } = thumb.map;
    const same = this.map && heads.receivers === this.map.heads.receivers && heads.senders === this.map.heads.senders;
    this.begun &&= same;
    this.set({
      layer: heads.short, ...(this.name === "relations" ? { relation: thumb.number } : { kind: heads.kind, head: thumb.number }),
      ...(same ? {} : { i: null, j: null, cell: null, x: 0, y: 0 }),
    });
  }

  move(di, dj) {
    const { map, state } = this, within = (place, count) => Math.max(0, Math.min(count - 1, place));
    const i = state.i === null ? 0 : within(state.i + di, map.n), j = state.j === null ? 0 : within(state.j + dj, map.m);
    this.hovered = { i: null, j: null };
    this.set({ i, j });
    this.view.reveal(i, j);
  }

  pin() {
    const { layer, kind, relation, head, view } = this.state, page = this.name;
    this.set({ pinned: this.state.pinned === null ? fragmentOf({ ...INITIAL, page, layer, kind, relation, head, view }).slice(1) : null });
  }

  get exported() {
    const { view } = this;
    return { title: this.map.title, numbers: () => pairRows(view), drawing: () => pairDrawing(view) };
  }

  key(event) {
    const { map, state } = this, far = event.shiftKey ? 10 : 1;
    if (!map) return false;
    const i = state.i === null ? 0 : state.i, { first, last } = map.heads.visible;
    const keys = {
      ArrowUp: () => this.move(-far, 0), ArrowDown: () => this.move(far, 0),
      ArrowLeft: () => this.move(0, -far), ArrowRight: () => this.move(0, far),
      Home: () => this.move(0, first[i] - (state.j || 0)), End: () => this.move(0, last[i] - 1 - (state.j || 0)),
      "[": () => this.gallery.step(-1), "]": () => this.gallery.step(1),
      "+": () => this.view.zoom(1.5), "=": () => this.view.zoom(1.5), "-": () => this.view.zoom(1 / 1.5),
      0: () => this.set({ cell: null, x: 0, y: 0 }),
      v: () => this.set({ view: nextOf(map.heads.views(map.relation), map.view) }),
      h: () => map.view === "attended" && this.set({ head: (map.head + 1) % map.heads.count }),
      o: () => this.set({ shared: 1 - this.state.shared }),
      s: () => this.set({ scale: nextOf(SCALE_NAMES, this.look.scale) }),
      p: () => this.pin(),
      Escape: () => this.set({ i: null, j: null }),
    };
    if (!(event.key in keys)) return false;
    keys[event.key]();
    return true;
  }

  listen() {
    get("head").addEventListener("change", (event) => this.set({ head: Number(event.target.value) }));
    get("scale").addEventListener("change", (event) => this.set({ scale: event.target.value }));
    get("contrast").addEventListener("input", (event) => this.set({ contrast: Number(event.target.value) }));
    get("smaller").addEventListener("click", () => this.view.zoom(1 / 1.5));
    get("larger").addEventListener("click", () => this.view.zoom(1.5));
    get("whole").addEventListener("click", () => this.set({ cell: null, x: 0, y: 0 }));
    get("pin").addEventListener("click", () => this.pin());
    get("shared").addEventListener("click", () => this.set({ shared: 1 - this.state.shared }));
  }
}
