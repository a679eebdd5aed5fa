// Effects: every head, relation and symbol path taken away in turn, beside changes as large in random directions.

import { colourOf, fillScale } from "./colours.js";
import { Drawing } from "./drawing.js";
import { dye } from "./links.js";
import { shortOf } from "./maps.js";
import { AnswerPage } from "./places.js";
import { switchesOf } from "./switches.js";
import { element, fillOptions, fillTable, get, signed, written } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */

const MEASURES = { kl: "divergence", loss: "change of the loss" };
const REMOVALS = { zero: "set to zero", mean: "set to its mean over the example", scale: "multiplied by" };
const PARTS_SHOWN = 40;

const partName = ({ mediator, layer, kind, number }) => `${layer} ${{ head: `${kind} head`, relation: "relation", symbol: "symbols of head" }[mediator]} ${number}`;

export class EffectsPage extends AnswerPage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    super(explorer, "effects", "ablate");
    this.ofCorpus = new AnswerPage(explorer, "corpus", "measure-corpus");
    fillOptions(get("effects-change"), Object.entries(REMOVALS), "zero");
    fillOptions(get("measure"), Object.entries(MEASURES), "kl");
    get("effects-change").addEventListener("change", () => explorer.set({ ablated: 0, change: get("effects-change").value }));
    get("effects-factor").addEventListener("change", () => explorer.set({ ablated: 0, factor: Number(get("effects-factor").value) || 0 }));
    get("draws").addEventListener("change", () => explorer.set({ ablated: 0, draws: Math.max(0, Math.round(Number(get("draws").value) || 0)) }));
    get("effects-over").addEventListener("change", () => explorer.set({ corpus: Number(get("effects-over").value) }));
    get("measure").addEventListener("change", () => explorer.set({ measure: get("measure").value }));
    get("ablate").addEventListener("click", () => this.start());
    get("measure-corpus").addEventListener("click", () => this.measureCorpus());
    get("stop-ablating").addEventListener("click", () => {
      for (const { running } of [this, this.ofCorpus]) if (running) running.abort();
    });
    get("effects-page").addEventListener("click", (event) => {
      const button = event.target.closest("button[data-part]");
      if (button) this.open(this.parts[button.dataset.part]);
    });
  }

  isPossible() {
    return this.parts.length > 0 && Boolean(this.explorer.kept.corpus || super.isPossible());
  }

  /** @param {Recording} recording */
  load(recording) {
    this.recording = recording;
    this.parts = recording.heads.flatMap((heads) => [...switchesOf(heads)].map(([, part]) => part));
    this.listed = false;
    if (this.running) this.running.abort();
    this.running = null;
  }

  get found() {
    return this.corpus || this.explorer.kept.effects || null;
  }

  // Effects over a corpus, if these are to be seen: those of the same parts, with intervals.
  get corpus() {
    const { kept, state, server } = this.explorer;
    return kept.corpus && (state.corpus || !(server || kept.effects)) ? kept.corpus : null;
  }

  get measure() {
    return this.explorer.state.measure === "loss" && this.found && this.found.loss !== null ? "loss" : "kl";
  }

  // The map of a part, or what else there is of it.
  open({ mediator, layer, kind, number }) {
    const heads = this.recording.heads.find((one) => one.layer === layer && one.kind === kind);
    const own = { layer: shortOf(layer), i: null, j: null, cell: null, x: 0, y: 0 };
    const { image } = this.recording;
    if (mediator === "relation") this.explorer.set({ ...own, page: image ? "vision" : "relations", maps: "relations", relation: number });
    else if (mediator === "symbol" && heads.assignment) this.explorer.set({ ...own, page: "symbols" });
    else if (image && heads.weights) this.explorer.set({ ...own, page: "vision", maps: "attention", kind, head: number });
    else this.explorer.set({ ...own, page: heads.weights ? "attention" : "relations", kind, head: number });
  }

  start() {
    const { explorer } = this, { change, factor, draws } = explorer.state;
    const { source, image } = this.recording, what = image ? { pixels: image.pixels } : { text: source };
    explorer.state.ablated = 1;
    let found = null;
    this.follow({ ...what, change, factor, draws }, (part) => {
      if (part.parts) found = explorer.kept.effects = { ...part, effects: part.parts.map(() => null), controls: part.parts.map(() => []) };
      else {
        part.effects.forEach((effect, place) => {
          if (part.draw === null) found.effects[part.first + place] = effect;
          else found.controls[part.first + place].push(effect);
        });
      }
      this.showSoon();
    }, () => {
      explorer.state.ablated = 0;
    });
  }

  // Over the corpus of the command, on from the texts that are finished, whatever text is shown meanwhile.
  async measureCorpus() {
    const { explorer } = this, { kept } = explorer;
    await this.ofCorpus.follow({}, (part) => {
      if (part.corpus) {
        kept.corpus = part.corpus;
        explorer.state.corpus = 1;
      } else this.soFar = part;
      this.showSoon();
    }, () => {});
    explorer.set({});
  }

  // What there is to be measured over a corpus, or how far it is.
  get ofRun() {
    const { server, kept } = this.explorer, { soFar } = this;
    if (kept.corpus || !server?.has("measure-corpus")) return "";
    return ` Over the corpus: ${soFar ? `${soFar.finished} of ${soFar.texts} texts are finished${this.ofCorpus.running ? "" : ", with which it goes on"}` : server.run}.`;
  }

  // Effects come faster than they are drawn.
  showSoon() {
    this.soon ||= setTimeout(() => {
      this.soon = 0;
      if (this.explorer.page === "effects") this.show();
    }, 150);
  }

  get done() {
    return 1 + this.found.effects.filter(Boolean).length + this.found.controls.reduce((sum, some) => sum + some.length, 0);
  }

  // Whether there are intervals: over a corpus, unless that is one text.
  get spreads() {
    return Boolean(this.found.intervals) && this.found.texts > 1;
  }

  // Parts with their effect by the chosen measure and the ends of the band, the largest first.
  get sorted() {
    const { measure, found } = this, which = measure === "loss" ? 0 : 1;
    const rows = found.effects.flatMap((effect, place) => {
      if (!effect || effect[which] === null) return []; // what is no number comes as null
      const controls = found.controls[place].map((one) => one[which]).filter((one) => one !== null), value = effect[which];
      const sizes = controls.map(Math.abs), beyond = found.beyond ? found.beyond[place][which] : controls.length > 0 ? Math.abs(value) > Math.max(...sizes) : null;
      const interval = found.intervals && found.intervals[place][which][0] !== null ? found.intervals[place][which] : null;
      return [{ place, part: found.parts[place], value, effect, controls, beyond, interval }];
    });
    return rows.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  }

  show() {
    const { state, server, kept } = this.explorer, { found, corpus } = this;
    get("effects-of").hidden = !kept.corpus || !(server || kept.effects);
    if (kept.corpus) fillOptions(get("effects-over"), [[0, `this ${this.recording.image ? "image" : "text"}`], [1, kept.corpus.source]], state.corpus ? 1 : 0);
    if (!this.listed) this.list();
    if (!found && server && state.ablated && !this.running) this.start();
    const { ofRun, soFar, ofCorpus } = this, busy = Boolean(this.running || ofCorpus.running);
    const change = state.change in REMOVALS ? state.change : "zero", passes = this.parts.length * (1 + state.draws) + 1;
    get("effects-tools").hidden = !server || Boolean(corpus);
    get("effects-change").value = change;
    get("effects-factor").hidden = change !== "scale";
    get("effects-factor").value = state.factor;
    get("draws").value = state.draws;
    get("measure").value = this.measure;
    get("measure-corpus").hidden = !ofRun;
    if (ofCorpus.running && soFar) [get("effects-busy").max, get("effects-busy").value] = [soFar.texts, soFar.finished];
    for (const id of ["effects-change", "effects-factor", "draws", "ablate", "measure-corpus"]) get(id).disabled = busy;
    get("stop-ablating").disabled = !busy;
    get("effects-busy").hidden = !busy;
    const count = (number) => number.toLocaleString("en"), { length } = this.parts;
    const more = ofRun || (server?.command && !kept.corpus ? ` The same over many texts, with intervals: ${server.command} --corpus PATH.` : "");
    get("effects-cost").textContent = server && !corpus
      ? `${count(passes)} forward passes: one of the model as it is, ${count(length)} each without a part, and ${count(length * state.draws)} with random directions.${more}` : "";
    get("effects-found").hidden = !found;
    if (found) this.showFound(found, Boolean(this.running));
    else get("effects-note").textContent = "Which head, relation or symbol path matters for this example? Press Start to remove each in turn.";
  }

  showFound(found, busy) {
    const { done, sorted, measure, spreads } = this, { look } = this.explorer;
    if (!this.ofCorpus.running) [get("effects-busy").max, get("effects-busy").value] = [found.passes, done];
    const scale = { most: Math.max(1e-9, ...sorted.map((row) => Math.abs(row.value))), diverging: measure === "loss" }, seen = { ...look, scale: "root", gain: 1 };
    get("measure").querySelector("option[value=loss]").disabled = found.loss === null;
    if (!busy) get("effects-note").textContent = this.said(found, sorted);
    fillScale(get("effects-scale"), scale, seen, `nats, square-root scale${found.draws && (spreads || !found.intervals) ? `; framed: ${spreads ? "the whole interval is " : ""}beyond every random direction` : ""}`);
    for (const { place, part, value, beyond } of sorted) {
      const cell = this.cells[place];
      dye(cell, colourOf(value, scale, seen));
      cell.classList.toggle("beyond", Boolean(beyond));
      cell.title = `${partName(part)}: ${MEASURES[measure]} ${this.shown(value)} nats${beyond ? ", beyond all random directions" : ""}`;
      cell.setAttribute("aria-label", cell.title);
    }
    const range = (values) => (values.length ? `${this.shown(Math.min(...values))} to ${this.shown(Math.max(...values))}` : "");
    const top = sorted.slice(0, PARTS_SHOWN);
    const which = top.length < sorted.length ? `The ${top.length} largest effects of ${sorted.length}; CSV has all.` : "All effects, the largest first.";
    fillTable(get("effects-table"), `${which} Choose one to see its map.`,
      ["part", `${MEASURES[measure]}, nats`, ...(spreads ? ["95 % interval"] : []), "random directions", "beyond them"], top.map(({ place, part, value, controls, beyond, interval }) => [
        element("button", { text: partName(part), className: "link", "data-part": `${place}` }), this.shown(value), ...(spreads ? [range(interval || [])] : []), range(controls), beyond === null ? "" : beyond ? "yes" : "no"]));
    get("effects-figure").replaceChildren(this.drawing(top.slice(0, 12)).element);
  }

  shown(value) {
    return this.measure === "loss" ? signed(value) : written(value);
  }

  said(found, sorted) {
    const beyond = sorted.filter((row) => row.beyond).length, draws = Math.min(...sorted.map((row) => row.controls.length)), [first] = sorted;
    const cut = this.done < found.passes ? ` Stopped after ${this.done} of ${found.passes} forward passes.` : "";
    if (!first) return `Nothing is measured yet.${cut}`;
    if (found.intervals) {
      const spread = draws && this.spreads ? ` The whole interval of ${beyond} of ${sorted.length} parts lies beyond all their random directions.` : "";
      return `Means over ${found.source}, ${this.spreads ? "with 95 % intervals" : "too few for intervals"}. ${partName(first.part)} has the largest effect.${spread} Each part: ${found.change}. The loss is of ${found.scored}, ${written(found.loss)} nats with all parts.`;
    }
    const control = draws ? ` ${beyond} of ${sorted.length} parts have a larger effect than all their random directions; by chance alone 1 in ${draws + 1} would.` : "";
    const loss = found.loss === null ? "" : ` The loss is of ${found.scored}, ${written(found.loss)} nats with all parts.`;
    return `${partName(first.part)} has the largest effect.${control} Each part: ${found.change}.${loss} It is a finding on one example; dat explore --corpus takes many.${cut}`;
  }

  // A button for each part, by layer and kind.
  list() {
    const list = document.createDocumentFragment();
    let layer = null, row = null, name = null;
    this.cells = this.parts.map((part, place) => {
      const kind = { head: `${part.kind} heads`, relation: "relations", symbol: "symbols of head" }[part.mediator];
      if (part.layer !== layer) list.append(element("h2", { className: "title", text: (layer = part.layer) }));
      if (name !== `${layer} ${kind}`) {
        name = `${layer} ${kind}`;
        row = element("div", { className: "switches", role: "group", "aria-label": name }, element("span", { text: kind }));
        list.append(row);
      }
      const cell = element("button", { text: `${part.number}`, title: partName(part), "aria-label": partName(part), "data-part": `${place}` });
      row.append(cell);
      return cell;
    });
    get("effects-grid").replaceChildren(list);
    this.listed = true;
  }

  // Effects on a line each, the random directions as circles.
  drawing(rows = this.sorted.slice(0, PARTS_SHOWN)) {
    const { theme } = this.explorer.look, { measure, found } = this, left = 210, wide = 560, right = 20, high = 20, top = 62;
    const title = `${MEASURES[measure]} without each part (${found.change}), nats`, drawing = new Drawing(wide, top + rows.length * high + 30, title, theme), { marks } = drawing;
    const all = rows.flatMap((row) => [row.value, ...row.controls, ...(row.interval || [])]), most = Math.max(1e-9, ...all), least = Math.min(0, ...all);
    const x = (value) => left + ((wide - left - right) * (value - least)) / (most - least);
    drawing.text(10, 20, title[0].toUpperCase() + title.slice(1), { "font-weight": 600 });
    drawing.add("path", { d: "M16,32 l6,6 l-6,6 l-6,-6 z", fill: marks[1] });
    drawing.text(28, 42, this.spreads ? "the part, 95 % interval" : "without the part");
    if (found.draws) {
      drawing.add("circle", { cx: 190, cy: 38, r: 4.5, fill: "none", stroke: marks[2], "stroke-width": 1.6 });
      drawing.text(201, 42, "a change as large in a random direction");
    }
    rows.forEach(({ part, value, controls, interval }, number) => {
      const y = top + number * high + 6;
      drawing.text(left - 10, y + 4, partName(part), { "text-anchor": "end" });
      drawing.line(left, y, wide - right, y);
      if (controls.length) drawing.rect(x(Math.min(...controls)), y - 2, x(Math.max(...controls)) - x(Math.min(...controls)), 4, marks[2], { opacity: 0.45 });
      controls.forEach((one) => drawing.add("circle", { cx: x(one), cy: y, r: 4.5, fill: "none", stroke: marks[2], "stroke-width": 1.6 }));
      if (interval) drawing.line(x(interval[0]), y, x(interval[1]), y, { stroke: marks[1], "stroke-width": 2.5 });
      drawing.add("path", { d: `M${x(value).toFixed(2)},${y - 6} l6,6 l-6,6 l-6,-6 z`, fill: marks[1] });
    });
    const bottom = top + rows.length * high + 14;
    drawing.line(x(0), top - 6, x(0), bottom - 12, { stroke: drawing.faint });
    for (const value of new Set([least, 0, most])) drawing.text(x(value), bottom, value ? this.shown(value) : "0", { "text-anchor": value === most ? "end" : "middle", fill: drawing.faint, "font-size": 11 });
    return drawing;
  }

  get exported() {
    const { found } = this;
    if (!found) throw new Error("There are no effects to save: nothing has been taken away.");
    const ends = (values) => (values.length ? [Math.min(...values), Math.max(...values)] : ["", ""]);
    const { intervals, texts } = found, ofCorpus = intervals ? ["texts", "divergence_low", "divergence_high", "loss_change_low", "loss_change_high"] : [];
    const rows = this.sorted.map(({ place, part, effect: [loss, divergence], beyond }) => [
      part.layer, part.kind, part.mediator, part.number, divergence, ...ends(found.controls[place].map((one) => one[1])), loss,
      ...ends(loss === null ? [] : found.controls[place].map((one) => one[0])), beyond === null ? "" : Number(beyond), found.change,
      ...(intervals ? [texts, ...intervals[place][1], ...intervals[place][0]] : []),
    ]);
    const headings = ["layer", "kind", "part", "number", "divergence", "divergence_random_least", "divergence_random_largest", "loss_change", "loss_change_random_least", "loss_change_random_largest", "beyond_random", "change", ...ofCorpus];
    return { title: "effects", numbers: () => ({ headings, rows }), drawing: () => this.drawing() };
  }
}
