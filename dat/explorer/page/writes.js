// Writes: what each head and relation adds to the logits of the next token, directly.

import { barDrawing } from "./drawing.js";
import { tokenElements } from "./links.js";
import { PlacePage } from "./places.js";
import { element, fillOptions, fillTable, get, isolated, percent, signed } from "./tables.js";

/** @import { Explorer } from "./main.js" */
/** @typedef {{ what: string, layer: string, kind: string, head: number | null, relation: number | null }} LogitPart */

const WRITERS = { head: "heads", relation: "relations through all heads", each: "each relation of each head" };
const WRITERS_SHOWN = 60;

/** @type {(part: LogitPart) => string} */
export const writerName = ({ what, layer, kind, head, relation }) => {
  const ofHead = head === null ? "" : `${kind} head ${head}`;
  const names = { embedding: "embedding", head: ofHead, relation: `${ofHead} relation ${relation}`, symbol: `${ofHead} symbols`, mlp: "feed-forward", bias: layer ? "biases" : "output biases" };
  return `${layer} ${names[what].trim()}`.trim();
};

export class WritesPage extends PlacePage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    super(explorer, "writes", "writes", "writes", { target: null, chosen: null });
    fillOptions(get("writes-by"), Object.entries(WRITERS), "head");
    get("writes-by").addEventListener("change", () => explorer.set({ by: get("writes-by").value, chosen: null }));
    get("writes-target").addEventListener("change", () => explorer.set({ target: Number(get("writes-target").value) }));
    get("writes-map").addEventListener("click", () => this.open());
    get("writes-table").addEventListener("click", (event) => {
      const button = event.target.closest("button[data-part]");
      if (button) explorer.set({ chosen: Number(button.dataset.part) });
    });
  }

  show() {
    const { state, server, kept } = this.explorer, by = state.by in WRITERS ? state.by : "head";
    get("writes-by").value = by;
    for (const id of ["writes-by", "writes-target"]) get(id).disabled = !server;
    const { place, target } = state;
    const answers = async function* answers(body, signal) {
      yield server.ask("writes", body, signal);
    };
    if (server) this.ask({ by, ...(place === null ? {} : { place }), ...(target === null ? {} : { target }) }, answers);
    get("writes-found").hidden = get("writes-box").hidden = !kept.writes;
    if (kept.writes) this.showFound(kept.writes);
  }

  // Numbers of the parts, the largest effect first.
  get sorted() {
    const { effects } = this.explorer.kept.writes;
    return effects.map((_, place) => place).sort((a, b) => Math.abs(effects[b]) - Math.abs(effects[a]));
  }

  // The number of the part whose tokens are shown: at first that of the head or relation with the largest effect.
  get chosen() {
    const { parts, writes } = this.explorer.kept.writes, { chosen } = this.explorer.state, { sorted } = this;
    if (chosen !== null && writes[chosen]) return chosen;
    return sorted.find((place) => parts[place].kind) ?? sorted[0];
  }

  showFound(found) {
    const { parts, effects, writes, likeliest, target, tokens, place } = found, { sorted, chosen } = this;
    fillOptions(get("writes-target"), likeliest.map(({ id, token, probability }) => [id, `${token}  ${percent(probability)}`]), target.id);
    tokenElements(tokens, get("writes-text")).forEach((token, number) => token.classList.toggle("receiver", number === place));
    const [first] = sorted.filter((one) => parts[one].kind);
    get("writes-note").textContent = `“${target.token}” after token ${place} “${tokens[place]}” has the logit ${signed(target.logit)} above the mean and the probability ${percent(target.probability)}. `
      + `${first === undefined ? "" : `Of heads and relations, ${writerName(parts[first])} adds most to it or takes most from it: ${signed(effects[first])}. `}These are direct effects on one text.`;
    get("writes-figure").replaceChildren(this.drawing(sorted.slice(0, 14)).element);
    const top = sorted.slice(0, WRITERS_SHOWN), which = top.length < sorted.length ? `The ${top.length} largest of ${sorted.length} effects; CSV has all.` : "All effects, the largest first; they add up to the logit.";
    fillTable(get("writes-table"), `${which} Choose one to see the tokens that it promotes and suppresses.`, ["part", "effect, nats"], top.map((one) => [
      writes[one] ? element("button", { text: writerName(parts[one]), className: "link", "data-part": `${one}`, "aria-pressed": String(one === chosen) }) : writerName(parts[one]), signed(effects[one])]));
    get("writes-name").textContent = writerName(parts[chosen]);
    get("writes-map").hidden = !this.mapOf(parts[chosen]);
    for (const end of ["promoted", "suppressed"]) {
      fillTable(get(`writes-${end}`), `Tokens that it ${end === "promoted" ? "promotes" : "suppresses"}`, ["token", "logit, nats"],
        writes[chosen][end].map(([token, value]) => [isolated(token), signed(value)]));
    }
  }

  // The head, relation or symbols that a part belongs to, where the page has maps of them.
  mapOf({ what, layer, kind, head, relation }) {
    if (!kind || !this.recording.heads.some((heads) => heads.layer === layer && heads.kind === kind)) return null;
    return { mediator: what, layer, kind, number: (what === "relation" ? relation : head) ?? 0 };
  }

  open() {
    this.explorer.pages.effects.open(this.mapOf(this.explorer.kept.writes.parts[this.chosen]));
  }

  drawing(chosen = this.sorted.slice(0, WRITERS_SHOWN)) {
    const { parts, effects, target, place } = this.explorer.kept.writes;
    const rows = chosen.map((one) => [writerName(parts[one]), effects[one]]);
    return barDrawing(`What parts write into “${target.token}” after token ${place}: logit less the mean of all, nats`, rows, signed, this.explorer.look.theme);
  }

  get exported() {
    const found = this.explorer.kept.writes;
    if (!found) throw new Error("There is nothing to save: the model has not answered yet.");
    const { parts, effects, writes, target } = found;
    const rows = this.sorted.flatMap((one) => {
      const { layer, what, kind, head, relation } = parts[one], about = [layer, what, kind, head, relation];
      const ends = Object.entries(writes[one] || {}).flatMap(([end, tokens]) => tokens.map(([token, value]) => [...about, end, token, value]));
      return [[...about, "effect", target.token, effects[one]], ...ends];
    });
    const headings = ["layer", "part", "kind", "head", "relation", "measure", "token", "value"];
    return { title: "writes", numbers: () => ({ headings, rows }), drawing: () => this.drawing() };
  }
}
