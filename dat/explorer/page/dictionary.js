// Dictionary: the pairs of a text that excite each relation most, in their contexts, beside pairs like them.

import { tokenElements } from "./links.js";
import { isNamed, shortOf } from "./maps.js";
import { element, fillOptions, get, written } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */

const END_NAMES = { high: "largest values", low: "smallest values" };

export class DictionaryPage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.explorer = explorer;
    fillOptions(get("dictionary-end"), Object.entries(END_NAMES), "high");
    get("dictionary-end").addEventListener("change", () => explorer.set({ end: get("dictionary-end").value }));
    get("dictionary-relations").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.choose(this.relations[button.dataset.place]);
    });
    get("make-dictionary").addEventListener("click", () => this.makeOfText());
    get("stop-dictionary").addEventListener("click", () => this.running && this.running.abort());
    get("corpus").addEventListener("change", async () => {
      const [file] = get("corpus").files;
      if (file) this.make(await file.text(), file.name);
    });
  }

  isPossible() {
    const { recording, server, kept } = this.explorer;
    return recording.heads.some((heads) => heads.relations) && Boolean(kept.dictionary || (server && server.paths.includes("make-dictionary")));
  }

  /** @param {Recording} recording */
  load(recording) {
    this.recording = recording;
  }

  get found() {
    return this.explorer.kept.dictionary || null;
  }

  // Layer and number of each relation that has entries.
  get relations() {
    const seen = new Map(this.found.entries.map(({ layer, relation }) => [JSON.stringify([layer, relation]), { layer, relation }]));
    return [...seen.values()];
  }

  get chosen() {
    const { layer, relation } = this.explorer.state, { relations } = this;
    const within = layer ? relations.filter((one) => isNamed(one.layer, layer)) : relations;
    return within.find((one) => one.relation === relation) || within[0] || relations[0];
  }

  choose({ layer, relation }) {
    this.explorer.set({ layer: shortOf(layer), relation });
  }

  makeOfText() {
    this.explorer.state.dictionary = 1;
    this.make(this.explorer.recording.source, "the text");
  }

  async make(text, source) {
    const { explorer } = this, running = new AbortController();
    if (this.running) this.running.abort();
    this.running = running;
    explorer.complain("");
    explorer.show();
    try {
      for await (const part of explorer.server.follow("make-dictionary", { text }, running.signal)) {
        if (part.dictionary) explorer.kept.dictionary = { ...part.dictionary, source };
        else [get("dictionary-busy").max, get("dictionary-busy").value] = [part.of, part.done];
      }
    } catch (error) {
      explorer.state.dictionary = 0;
      if (error.name !== "AbortError") explorer.complain(error.message);
    } finally {
      if (this.running === running) this.running = null;
      if (explorer.page === "dictionary") this.show();
    }
  }

  async ask() {
    const { explorer } = this;
    this.asked = true;
    try {
      explorer.kept.dictionary = (await explorer.server.ask("dictionary", {})).dictionary;
      if (explorer.page === "dictionary") this.show();
    } catch (error) {
      explorer.complain(error.message);
    }
  }

  show() {
    const { state, server } = this.explorer, { found } = this, busy = Boolean(this.running);
    if (!found && server && server.paths.includes("dictionary") && !this.asked) this.ask();
    else if (!found && server && state.dictionary && !busy) this.makeOfText();
    for (const id of ["make-dictionary", "corpus"]) get(id).disabled = !server || busy;
    get("dictionary-tools").hidden = !server;
    get("stop-dictionary").disabled = !busy;
    get("dictionary-busy").hidden = !busy;
    get("dictionary-entries").hidden = get("dictionary-choice").hidden = !found;
    if (!found) {
      get("dictionary-note").textContent = busy ? "" : "Make a dictionary of the text above, or of a file of text, which goes to the server on this machine and no further.";
      return;
    }
    const { chosen, relations } = this;
    get("dictionary-note").textContent = `Of ${found.source}: ${(found.tokens || 0).toLocaleString("en")} tokens in ${(found.documents || 0).toLocaleString("en")} document${found.documents === 1 ? "" : "s"}. ${found.note}`;
    const list = document.createDocumentFragment();
    let layer = null, row = null;
    relations.forEach((one, place) => {
      if (one.layer !== layer) {
        layer = one.layer;
        row = element("div", { className: "switches", role: "group", "aria-label": `relations of ${layer}` });
        list.append(element("h2", { className: "title", text: `${layer} relations` }), row);
      }
      const pressed = one.layer === chosen.layer && one.relation === chosen.relation;
      row.append(element("button", { text: `${one.relation}`, "data-place": `${place}`, "aria-pressed": String(pressed), "aria-label": `${layer} relation ${one.relation}` }));
    });
    get("dictionary-relations").replaceChildren(list);
    const ends = Object.keys(END_NAMES).filter((end) => found.entries.some((entry) => entry.end === end));
    fillOptions(get("dictionary-end"), ends.map((end) => [end, END_NAMES[end]]), ends.includes(state.end) ? state.end : ends[0]);
    get("dictionary-list").replaceChildren(...this.entries.map((entry) => this.entryElement(entry)));
  }

  get entries() {
    const { chosen } = this, end = get("dictionary-end").value;
    return this.found.entries.filter((entry) => entry.layer === chosen.layer && entry.relation === chosen.relation && entry.end === end);
  }

  entryElement(entry) {
    const item = element("li", {}, this.pairElement(entry.example, "strong"));
    if (entry.counterexamples.length) {
      const others = element("ul", {}, ...entry.counterexamples.map((one) => element("li", {}, this.pairElement(one, "span"))));
      item.append(element("details", {}, element("summary", { text: "pairs as far apart, of tokens as frequent" }), others));
    }
    return item;
  }

  pairElement({ value, receiver, sender }, tag) {
    const context = (name, { labels, at }) => {
      const text = element("span", { className: "text context" });
      tokenElements(labels, text)[at].classList.add(name);
      return text;
    };
    return element("div", { className: "pair" }, element(tag, { text: written(value), className: "value" }),
      element("span", { className: "role", text: "receiver" }), context("receiver", receiver), element("span", { className: "role", text: "sender" }), context("sender", sender));
  }

  key(event) {
    if (!this.found || !["[", "]"].includes(event.key)) return false;
    const { relations, chosen } = this, now = relations.findIndex((one) => one.layer === chosen.layer && one.relation === chosen.relation);
    this.choose(relations[Math.max(0, Math.min(relations.length - 1, now + (event.key === "]" ? 1 : -1)))]);
    return true;
  }

  get exported() {
    if (!this.found) throw new Error("There is no dictionary to save.");
    const { chosen, entries } = this, plain = ({ labels }) => labels.join("");
    const line = (rank, kind, { value, document, receiver, sender }) => [
      rank, kind, value, document, receiver.place, receiver.labels[receiver.at], sender.place, sender.labels[sender.at], plain(receiver), plain(sender),
    ];
    const rows = entries.flatMap(({ rank, example, counterexamples }) => [line(rank, "pair", example), ...counterexamples.map((one) => line(rank, "like it", one))]);
    return {
      title: `${chosen.layer} relation ${chosen.relation} ${END_NAMES[get("dictionary-end").value]}`,
      numbers: () => ({ headings: ["rank", "kind", "value", "document", "receiver", "receiver_token", "sender", "sender_token", "receiver_context", "sender_context"], rows }),
    };
  }
}
