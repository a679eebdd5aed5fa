// The page: what is seen follows from the state, which stands in the address; controls only change the state.

import { CardPage } from "./card.js";
import { listenForCitations } from "./cite.js";
import { DictionaryPage } from "./dictionary.js";
import { EffectsPage } from "./effects.js";
import { saveAs } from "./exports.js";
import { GeneratePage } from "./generate.js";
import { Heads } from "./maps.js";
import { ModelPage } from "./model.js";
import { PairPage } from "./pairs.js";
import { PatchingPage } from "./patching.js";
import { AnswerPage } from "./places.js";
import { listenForTexts, markPrompt, Server } from "./server.js";
import { fragmentOf, nextOf, packedText, stateOf, unpackedText } from "./state.js";
import { SwitchPage } from "./switches.js";
import { SymbolPage } from "./symbols.js";
import { all, fillOptions, get } from "./tables.js";
import { Tour } from "./tour.js";
import { listenForImages, VisionPage } from "./vision.js";
import { WritesPage } from "./writes.js";

/** @import { State } from "./state.js" */

/**
 * @typedef {{
 *   title: string, facts: Record<string, string>, sequences: Record<string, string[]>, heads: Heads[],
 *   reads: string, source?: string | null, image?: any, large?: boolean, beside?: Recording,
 * }} Recording
 */

const THEMES = ["system", "light", "dark"];
// What belongs to a text and leads nowhere in another one.
const ELSEWHERE = { i: null, j: null, cell: null, x: 0, y: 0, place: null, step: null, generated: 0, dictionary: 0, ablated: 0, target: null, chosen: null, answer: null, foil: null };

// Links that are cited carry no token; the server's answer to one that comes without takes it from here.
function keepToken(token) {
  try {
    localStorage.setItem("dat_token", token);
  } catch {
    // a browser that keeps nothing
  }
}

export class Explorer {
  /** @type {Recording} */
  recording;
  /** @type {Recording[]} */
  recordings = []; // of the model, and of one beside it

  constructor(data) {
    this.server = data.server ? new Server(data.server) : null;
    if (this.server) keepToken(this.server.token);
    this.citation = data.citation;
    this.keeps = [data.kept || {}, (data.kept || {}).beside || {}]; // answers of each model that a file holds, by page
    this.state = stateOf(location.hash || data.state || "");
    const pairs = new PairPage(this);
    this.pages = {
      relations: pairs, attention: pairs, vision: new VisionPage(this), symbols: new SymbolPage(this), effects: new EffectsPage(this), writes: new WritesPage(this), card: new CardPage(this),
      interventions: new SwitchPage(this), patching: new PatchingPage(this), dictionary: new DictionaryPage(this), generate: new GeneratePage(this), model: new ModelPage(this),
    };
    document.documentElement.dataset.theme = this.theme;
    if (this.server && data.recording.reads === "text") listenForTexts(this);
    if (this.server && data.recording.reads === "image") listenForImages(this);
    this.follow(data.recording);
  }

  // Show what the address asks for: its text, if it is another one than that of the recording at hand, and its view.
  async follow(recording) {
    const { weights, text, own, beside } = this.state, { facts, source } = recording, second = recording.beside?.facts.weights;
    const turn = (this.turn = (this.turn || 0) + 1); // of answers, those to the last question count
    let found = recording;
    this.warning = weights && facts.weights && weights !== facts.weights
      ? `This address is of a model with the weights ${weights}; those of this one are ${facts.weights}, and what you see differs.`
      : beside && beside !== second ? `This address is of two models, the second with the weights ${beside}; ${second ? `those of the second here are ${second}` : "dat explore --beside opens it"}.` : "";
    try {
      const wanted = text && await unpackedText(text);
      if (own && source !== null) throw new Error("This address is of an image from a file, which it does not hold; choose that file again.");
      if (wanted && wanted !== source) {
        if (!this.server) throw new Error("This address is of another text than this file; dat explore --view shows it.");
        this.busy(true);
        found = await this.server.record(recording.reads, wanted);
      }
      if (turn !== this.turn) return;
      this.complain("");
    } catch (error) {
      if (turn !== this.turn) return;
      this.complain(error.message);
      Object.assign(this.state, ELSEWHERE);
    }
    this.busy(false);
    if (found === this.packed) return this.show();
    if (found !== recording) this.forget();
    const first = !this.packed;
    await this.load(found);
    if (first) {
      this.listen();
      this.tour = new Tour(this);
    }
  }

  // Let go of answers to another text.
  forget() {
    const ofModel = ["model", "dictionary", "notes", "corpus", "fires"]; // whatever the text
    for (const kept of this.keeps) {
      for (const name of Object.keys(kept)) if (!ofModel.includes(name)) delete kept[name];
      if (kept.dictionary && kept.dictionary.source === "the text") kept.dictionary.source = "an earlier text";
    }
  }

  // Number of the recording that is seen.
  get which() {
    return this.state.model === 1 && this.recordings.length > 1 ? 1 : 0;
  }

  get kept() {
    return this.keeps[this.which];
  }

  busy(is) {
    get("busy").hidden = get("image-busy").hidden = !is;
    for (const control of all("#ask button, #ask-image :is(input, select)")) control.disabled = is;
  }

  async load(data) {
    const { state } = this, text = data.source === undefined ? state.text : await packedText(data.source || "");
    if (state !== this.state) return; // Back was pressed meanwhile
    this.packed = data;
    this.tabs = all("nav button");
    this.recordings = [data, ...(data.beside ? [data.beside] : [])].map((one, which) => ({
      ...one, beside: one.beside && { ...one.beside, heads: null }, heads: one.heads.map((packed, place) => new Heads(packed, place, one.large ? (name, numbers) => this.maps(which, { text: data.source, heads: place, name, numbers }) : null)),
    }));
    this.recording = null;
    this.large = this.recordings.some((one) => one.large);
    if (this.large) { // what is read of it is kept, and no more
      this.packed = { ...data, heads: null, beside: data.beside && { ...data.beside, heads: null } };
      get("data").textContent = "";
    }
    get("models").hidden = this.recordings.length < 2;
    if (data.beside) fillOptions(get("shown-model"), [[0, `A: ${data.title}`], [1, `B: ${data.beside.title}`], [2, "B − A, of maps"]], 0);
    this.turnTo(this.which);
    if (data.reads === "text" && this.server) {
      get("prompt").value = data.source;
      markPrompt(this);
    }
    if (data.reads === "image" && this.server) get("sample").value = data.source || "";
    Object.assign(state, { text, weights: data.facts.weights || "", beside: data.beside?.facts.weights || "", own: data.source === null ? 1 : 0 });
    this.show();
    this.remember();
  }

  // Pages are of one model at a time.
  turnTo(which) {
    const recording = this.recordings[which];
    get("shown-model").value = `${this.recordings.length > 1 ? this.state.model : 0}`;
    if (this.recording === recording) return;
    this.recording = recording;
    if (this.server) this.server.prefix = which ? "beside/" : "";
    for (const page of new Set(Object.values(this.pages))) {
      if (page instanceof AnswerPage && page.running) page.running.abort();
      page.load(recording);
    }
    get("title").textContent = recording.title;
    document.title = this.packed.title;
    get("facts").textContent = Object.entries(recording.facts).filter(([name]) => name !== "formula").map(([name, value]) => `${name} ${value}`).join(" · ");
  }

  // Maps of a large recording.
  async maps(which, asked) {
    try {
      return (await this.server.ask("maps", asked, undefined, which ? "beside/" : "")).maps;
    } catch (error) {
      this.complain(error.message);
      throw error;
    }
  }

  // Show another text, or image.
  async replace(reads, source) {
    const turn = (this.turn = (this.turn || 0) + 1);
    this.busy(true);
    try {
      const data = await this.server.record(reads, source);
      if (turn !== this.turn) return;
      this.forget();
      Object.assign(this.state, ELSEWHERE);
      this.warning = "";
      this.complain("");
      await this.load(data);
    } catch (error) {
      if (turn === this.turn) this.complain(error.message);
    } finally {
      if (turn === this.turn) this.busy(false);
    }
  }

  // What is shown, as an address has it.
  get view() {
    return fragmentOf({ ...this.state, page: this.page });
  }

  // What a file of this page holds: of a large recording, the maps of the layers that are seen.
  async contents() {
    const { source } = this.packed, pinned = this.state.pinned && stateOf(this.state.pinned).layer;
    const recording = this.large ? (await this.server.ask("record", { text: source, layers: [this.state.layer, ...(pinned ? [pinned] : [])] }, undefined, "")).recording : this.packed;
    return { recording, server: null, kept: { ...this.keeps[0], beside: this.keeps[1] }, state: this.view, citation: this.citation };
  }

  // -- state ---------------------------------------------------------------------------------------------------------

  /** @param {Partial<State>} change */
  set(change) {
    Object.assign(this.state, change);
    this.show();
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.remember(), 150);
  }

  remember() {
    const fragment = fragmentOf(this.state), place = JSON.stringify([this.page, this.state.text]);
    try {
      if (fragment !== location.hash) history[!this.place || place === this.place ? "replaceState" : "pushState"](null, "", fragment);
      this.place = place; // from which Back leads to the page, or text, before
    } catch (error) {
      if (error.name !== "SecurityError") throw error; // a page within another one has no address of its own
    }
  }

  get theme() {
    const { theme } = this.state;
    if (this.printing) return "light";
    return THEMES.slice(1).includes(theme) ? theme : matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  get look() {
    return { theme: this.theme, gain: 2 ** this.state.contrast };
  }

  // Names of the pages that have something to show.
  get names() {
    return Object.keys(this.pages).filter((name) => !this.pages[name].isPossible || this.pages[name].isPossible(name));
  }

  get page() {
    const { names } = this;
    return names.includes(this.state.page) ? this.state.page : names[0];
  }

  // -- what is seen --------------------------------------------------------------------------------------------------

  show() {
    this.turnTo(this.which);
    const { page, theme, names } = this;
    document.documentElement.dataset.theme = theme;
    get("letters").checked = Boolean(this.state.letters);
    get("theme").textContent = `Colours: ${this.state.theme}`;
    for (const tab of this.tabs) {
      const chosen = tab.dataset.page === page;
      tab.hidden = !names.includes(tab.dataset.page);
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    const shown = this.tabs.find((tab) => tab.dataset.page === page).getAttribute("aria-controls");
    for (const panel of all("main > section")) panel.hidden = panel.id !== shown;
    this.pages[page].show();
    if (this.tour) this.tour.follow();
  }

  complain(message) {
    get("message").textContent = [this.warning, message].filter(Boolean).join("\n");
    get("message").hidden = !get("message").textContent;
  }

  // -- what people do ------------------------------------------------------------------------------------------------

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return false;
    if (event.key.length === 1 && !this.state.letters) return false;
    const { names } = this;
    if (/^[1-9]$/.test(event.key) && names[event.key - 1]) return this.set({ page: names[event.key - 1] }), true;
    if (event.key === "d") return this.set({ theme: nextOf(THEMES, this.state.theme) }), true;
    if (event.key === "m" && this.recordings.length > 1) return this.set({ model: nextOf([0, 1, 2], this.state.model) }), true;
    if (event.key === "?") return get("help").showModal(), true;
    const page = this.pages[this.page];
    return Boolean(page.key && page.key(event));
  }

  async save(kind) {
    try {
      await saveAs(kind, this.pages[this.page], this);
      this.complain("");
    } catch (error) {
      this.complain(error.message);
    }
  }

  listen() {
    document.addEventListener("keydown", (event) => {
      if (!document.querySelector("dialog:modal") && this.key(event)) event.preventDefault();
    });
    for (const tab of this.tabs) tab.addEventListener("click", () => this.set({ page: tab.dataset.page }));
    document.querySelector("nav").addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], { names } = this;
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      this.set({ page: names[(names.indexOf(this.page) + step + names.length) % names.length] });
      this.tabs.find((tab) => tab.dataset.page === this.page).focus();
    });
    get("shown-model").addEventListener("change", () => this.set({ model: Number(get("shown-model").value) }));
    get("theme").addEventListener("click", () => this.set({ theme: nextOf(THEMES, this.state.theme) }));
    get("letters").addEventListener("change", () => this.set({ letters: Number(get("letters").checked) }));
    get("help-button").addEventListener("click", () => get("help").showModal());
    listenForCitations(this);
    for (const kind of ["png", "svg", "csv", "html"]) get(kind).addEventListener("click", () => this.save(kind));
    addEventListener("popstate", () => { // hashchange comes a task later, in which remember() would overwrite the entry
      clearTimeout(this.saving);
      this.state = stateOf(location.hash);
      this.place = null;
      this.follow(this.packed);
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
    for (const kind of ["beforeprint", "afterprint"]) {
      addEventListener(kind, () => {
        this.printing = kind === "beforeprint"; // on white paper
        this.show();
      });
    }
    addEventListener("resize", () => this.pages[this.page].resize && this.pages[this.page].resize());
  }
}

new Explorer(JSON.parse(get("data").textContent));
