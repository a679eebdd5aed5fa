// Patching: mediators of a second text put in the place of those of the first, one at a time.

import { colourOf, fillScale } from "./colours.js";
import { barDrawing } from "./drawing.js";
import { dye, tokenElements } from "./links.js";
import { PlacePage } from "./places.js";
import { element, fillOptions, fillTable, get, percent, signed, written } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */
/** @typedef {{ layer: string, kind: string, mediator: string, number: number | null, recovery: number | null, change: number, kl: number }} Patch */

const PATCHED = { 0: "of all heads together", 1: "of each head and relation" };
const PATCHES_SHOWN = 40;

/** @type {(patch: Patch) => string} */
const columnOf = ({ kind, mediator, number }) => {
  if (mediator === "head") return number === null ? "all heads" : `${kind} heads`;
  return mediator === "selection" ? `${kind} selections` : `${mediator}s`;
};
/** @type {(patch: Patch) => string} */
const patchName = (patch) => {
  const { layer, kind, mediator, number } = patch;
  if (number === null) return `${layer} ${columnOf(patch)}`;
  const names = { relation: "relation", head: `${kind} head`, selection: `selection of ${kind} head`, value: "values of head", symbol: "symbols of head" };
  return `${layer} ${names[mediator]} ${number}`;
};

export class PatchingPage extends PlacePage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    super(explorer, "patching", "patch", "patching", { answer: null, foil: null });
    fillOptions(get("patching-each"), Object.entries(PATCHED), "0");
    get("ask-other").addEventListener("submit", (event) => {
      event.preventDefault();
      this.asked = null; // the same may be asked again
      explorer.set({ other: get("other").value, answer: null, foil: null });
    });
    get("other").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) get("ask-other").requestSubmit();
    });
    get("patching-each").addEventListener("change", () => explorer.set({ each: Number(get("patching-each").value) }));
    for (const name of ["answer", "foil"]) get(`patching-${name}`).addEventListener("change", () => explorer.set(this.tokens(name)));
    get("patching-found").addEventListener("click", (event) => {
      const button = event.target.closest("button[data-patch]");
      if (button) this.open(explorer.kept.patching.cells[button.dataset.patch]);
    });
  }

  // Answer and foil after one of them was chosen: both stay as they are seen, unless they are the same.
  tokens(chosen) {
    const found = { answer: Number(get("patching-answer").value), foil: Number(get("patching-foil").value) };
    if (found.answer === found.foil) found[chosen === "answer" ? "foil" : "answer"] = this.explorer.kept.patching[chosen].id;
    return found;
  }

  /** @param {Recording} recording */
  load(recording) {
    super.load(recording);
    get("other").value = this.explorer.state.other;
  }

  show() {
    const { state, server, kept } = this.explorer, { other, place, answer, foil } = state, each = state.each ? 1 : 0;
    get("ask-other").hidden = !server;
    get("patching-each").value = each;
    for (const id of ["patching-each", "patching-answer", "patching-foil"]) get(id).disabled = !server || !kept.patching;
    const given = Object.fromEntries(Object.entries({ place, answer, foil }).filter(([, value]) => value !== null));
    if (server && other) this.ask({ other, by: each ? "head" : "kind", ...given }, (body, signal) => this.answers(body, signal));
    get("patching-found").hidden = get("patching-chosen").hidden = !kept.patching;
    if (kept.patching) this.showFound(kept.patching);
    else get("patching-note").textContent = "What in this text would have to be as in another one for the answer to be another? Write a second text of as many tokens, with one word changed, say.";
  }

  // The answer so far, again and again.
  async* answers(body, signal) {
    const busy = get("patching-busy");
    get("other").value = body.other;
    busy.removeAttribute("value");
    let found = null;
    for await (const part of this.explorer.server.follow("patch", body, signal)) {
      found = part.cells ? { ...found, cells: [...found.cells, ...part.cells] } : { ...part, cells: [] };
      [busy.max, busy.value] = [found.count, found.cells.length];
      yield found;
    }
  }

  // Numbers of the cells with a recovery, the largest first.
  get sorted() {
    const { cells } = this.explorer.kept.patching, recovery = (place) => Math.abs(cells[place].recovery);
    return cells.map((_, place) => place).filter((place) => cells[place].recovery !== null).sort((a, b) => recovery(b) - recovery(a));
  }

  showFound(found) {
    const { cells, tokens, others, place, answer, foil, candidates } = found, { sorted } = this;
    const options = candidates.map(({ id, token, here, there }) => [id, `${token}  ${percent(here)} → ${percent(there)}`]);
    fillOptions(get("patching-answer"), options, answer.id);
    fillOptions(get("patching-foil"), options, foil.id);
    for (const [id, labels, rest] of [["patching-text", tokens, others], ["patching-other", others, tokens]]) {
      tokenElements(labels, get(id)).forEach((token, number) => {
        token.classList.toggle("receiver", number === place);
        token.classList.toggle("changed", labels[number] !== rest[number]);
      });
    }
    get("patching-note").textContent = this.said(found, sorted);
    const scale = { most: Math.max(1, ...sorted.map((one) => Math.abs(cells[one].recovery))), diverging: true }, look = { ...this.explorer.look, scale: "linear", gain: 1 };
    fillScale(get("patching-scale"), scale, look, "recovery; 0 as with the text, 1 as with the second");
    this.fillGrid(cells, scale, look);
    get("patching-figure").replaceChildren(this.drawing(sorted.slice(0, 12)).element);
    const top = sorted.slice(0, PATCHES_SHOWN), which = top.length < sorted.length ? `The ${top.length} largest recoveries of ${sorted.length}; CSV has all.` : "All recoveries, the largest first.";
    fillTable(get("patching-table"), which, ["patched", "recovery", "change of D, nats", "divergence, nats"],
      top.map((one) => [this.button(one, patchName(cells[one]), "link"), signed(cells[one].recovery), signed(cells[one].change), written(cells[one].kl)]));
  }

  // A row for each layer, a column for each mediator, and in it a button for all heads, or for each.
  fillGrid(cells, scale, look) {
    const layers = [...new Set(cells.map((cell) => cell.layer))], columns = [...new Set(cells.map(columnOf))];
    const rows = layers.map((layer) => [layer, ...columns.map((column) => {
      const box = element("div", { className: "patches" });
      cells.forEach((cell, place) => {
        if (cell.layer !== layer || columnOf(cell) !== column) return;
        const { recovery, number } = cell, button = this.button(place, number === null ? (recovery === null ? "–" : recovery.toFixed(2)) : `${number}`, "");
        if (recovery !== null) dye(button, colourOf(recovery, scale, look));
        button.title = `${patchName(cell)}: recovery ${recovery === null ? "not defined" : signed(recovery)}`;
        button.setAttribute("aria-label", button.title);
        box.append(button);
      });
      return box;
    })]);
    fillTable(get("patching-grid"), "Recovery by layer and mediator. Choose one to see its map with the text above.", ["layer", ...columns], rows);
  }

  button(place, text, className) {
    return element("button", { text, className, "data-patch": `${place}` });
  }

  // The finding in a sentence, after what it means.
  said({ cells, differences: [here, there], answer, foil, count }, [first]) {
    const gap = `D, the logit of “${answer.token}” less that of “${foil.token}”, is ${signed(here)} nats with the text and ${signed(there)} with the second.`;
    if (cells.length < count) return gap;
    if (first === undefined) return `${gap} They are equal, so there is nothing to recover.`;
    const single = this.sorted.find((place) => cells[place].mediator !== "head");
    return `${gap} ${written(cells[single].recovery)} of the change comes with ${patchName(cells[single])} alone. Recoveries need not add up to 1. It is a finding on one pair of texts; measure_patching takes many.`;
  }

  // The map of what was patched.
  open({ layer, kind, mediator, number }) {
    const own = this.recording.heads.filter((heads) => heads.layer === layer), heads = own.find((one) => one.kind === kind) || own[0];
    if (!heads) return;
    const what = mediator === "relation" || mediator === "symbol" ? mediator : "head";
    this.explorer.pages.effects.open({ mediator: what, layer, kind: heads.kind, number: number ?? 0 });
  }

  drawing(chosen = this.sorted.slice(0, PATCHES_SHOWN)) {
    const { cells, answer, foil } = this.explorer.kept.patching;
    const rows = chosen.map((one) => [patchName(cells[one]), cells[one].recovery]);
    return barDrawing(`Recovery of “${answer.token}” against “${foil.token}”, each mediator of the second text alone`, rows, signed, this.explorer.look.theme);
  }

  get exported() {
    const found = this.explorer.kept.patching;
    if (!found) throw new Error("There is nothing to save: no second text has been patched from.");
    const { cells, answer, foil } = found, size = ({ recovery }) => Math.abs(recovery ?? 0);
    const rows = [...cells].sort((a, b) => size(b) - size(a)).map(({ layer, kind, mediator, number, recovery, change, kl }) => [layer, kind, mediator, number, recovery, change, kl, answer.token, foil.token]);
    const headings = ["layer", "kind", "mediator", "number", "recovery", "logit_difference_change", "divergence", "answer", "foil"];
    return { title: "patching", numbers: () => ({ headings, rows }), drawing: () => this.drawing() };
  }
}
