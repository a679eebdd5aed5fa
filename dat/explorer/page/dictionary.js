// Dictionary: the pairs of a text that excite each relation most, in their contexts, beside pairs like them.

import { tokenElements } from "./links.js";
import { keyOf, RelationPage } from "./relations.js";
import { element, fillOptions, get, written } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */

const END_NAMES = { high: "largest values", low: "smallest values" };

export class DictionaryPage extends RelationPage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    super(explorer, "dictionary", "make-dictionary", "dictionary-relations");
    fillOptions(get("dictionary-end"), Object.entries(END_NAMES), "high");
    get("dictionary-end").addEventListener("change", () => explorer.set({ end: get("dictionary-end").value }));
    get("make-dictionary").addEventListener("click", () => this.makeOfText());
    get("stop-dictionary").addEventListener("click", () => this.running && this.running.abort());
    get("corpus").addEventListener("change", async () => {
      const [file] = get("corpus").files;
      if (!file) return;
      explorer.state.dictionary = 0; // it is of another text than that of the address
      this.make(await file.text(), file.name);
    });
  }

  isPossible() {
    return this.explorer.recording.heads.some((heads) => heads.relations) && super.isPossible();
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
    const { entries } = this.found || { entries: [] };
    return [...new Map(entries.map(({ layer, relation }) => [keyOf({ layer, relation }), { layer, relation }])).values()];
  }

  makeOfText() {
    this.explorer.state.dictionary = 1;
    this.make(this.explorer.recording.source, "the text");
  }

  make(text, source) {
    const { explorer } = this;
    this.follow({ text }, (part) => {
      if (part.dictionary) explorer.kept.dictionary = { ...part.dictionary, source };
      else [get("dictionary-busy").max, get("dictionary-busy").value] = [part.of, part.done];
    }, () => {
      explorer.state.dictionary = 0;
    });
  }

  async ask() {
    const { explorer } = this, { kept } = explorer;
    this.asked = true;
    try {
      kept.dictionary = (await explorer.server.ask("dictionary", {})).dictionary;
      if (explorer.page === "dictionary") this.show();
    } catch (error) {
      explorer.complain(error.message);
    }
  }

  show() {
    const { state, server } = this.explorer, { found } = this, busy = Boolean(this.running);
    if (!found && server && server.has("dictionary") && !this.asked) this.ask();
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
    get("dictionary-note").textContent = `Of ${found.source}: ${(found.tokens || 0).toLocaleString("en")} tokens in ${(found.documents || 0).toLocaleString("en")} document${found.documents === 1 ? "" : "s"}. ${found.note}`;
    this.mark(() => true);
    const ends = Object.keys(END_NAMES).filter((end) => found.entries.some((entry) => entry.end === end));
    fillOptions(get("dictionary-end"), ends.map((end) => [end, END_NAMES[end]]), ends.includes(state.end) ? state.end : ends[0]);
    get("dictionary-list").replaceChildren(...this.entries.map((entry) => this.entryElement(entry)));
  }

  get entries() {
    const { chosen } = this, end = get("dictionary-end").value;
    return this.found.entries.filter((entry) => entry.layer === chosen.layer && entry.relation === chosen.relation && entry.end === end);
  }

  entryElement(entry, beside = "pairs about as far apart, of tokens as frequent") {
    const item = element("li", {}, this.pairElement(entry.example, "strong"));
    if (entry.counterexamples.length) {
      const others = element("ul", {}, ...entry.counterexamples.map((one) => element("li", {}, this.pairElement(one, "span"))));
      item.append(element("details", {}, element("summary", { text: beside }), others));
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
