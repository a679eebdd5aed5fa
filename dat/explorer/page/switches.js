// Interventions: switches of heads, relations and symbols, and what they do to the predictions for the text.

import { colourOf } from "./colours.js";
import { Drawing } from "./drawing.js";
import { dye, tokenElements } from "./links.js";
import { PlacePage } from "./places.js";
import { element, fillOptions, fillTable, get, isolated, percent, signed, written } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */
/** @import { Heads } from "./maps.js" */

const CHANGE_NAMES = { zero: "puts zero", mean: "puts the mean over the text", scale: "multiplies by" };
export const PATIENCE = 250; // milliseconds without another choice after which the model is asked

/** @typedef {{ mediator: string, layer: string, kind: string, number: number }} Part */

// What can be switched of heads, by codes.
/** @type {(heads: Heads) => Generator<[string, Part]>} */
export function* switchesOf(heads) {
  for (const mediator of heads.mediators) {
    const letters = { head: heads.kind === "sensory" ? "sa" : "ra", relation: "r", symbol: "s" }[mediator];
    const count = mediator === "relation" ? heads.relations.maps : heads.count;
    for (let number = 0; number < count; number++) {
      yield [`${letters}${heads.short}.${number}`, { mediator, layer: heads.layer, kind: heads.kind, number }];
    }
  }
}

const namesOf = ({ loss }) => (loss.controls.length ? ["as it is", "switched", "random direction"] : ["A", "B"]);
const sharesOf = ({ before, after, control }) => [before, after, ...(control === null ? [] : [control])];

export class SwitchPage extends PlacePage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    super(explorer, "interventions", "intervene", "switch", {});
    fillOptions(get("change"), Object.entries(CHANGE_NAMES), "zero");
    get("change").addEventListener("change", () => explorer.set({ change: get("change").value }));
    get("factor").addEventListener("change", () => explorer.set({ factor: Number(get("factor").value) || 0 }));
    get("all-on").addEventListener("click", () => explorer.set({ off: "" }));
    get("switch-list").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.toggle(button.dataset.codes.split("_"));
    });
  }

  /** @param {Recording} recording */
  load(recording) {
    super.load(recording);
    this.switches = new Map(recording.heads.flatMap((heads) => [...switchesOf(heads)]));
    if (recording.beside) this.switches.set("beside", null); // the model beside, in place of this one
    this.listed = false;
  }

  // Codes of switches that are off: r1.3 is relation 3 of layer 1; the page of Python's View says all.
  get off() {
    return this.explorer.state.off.split("_").filter((code) => this.switches.has(code));
  }

  toggle(codes) {
    const off = new Set(this.off), were = codes.every((code) => off.has(code));
    off.delete("beside");
    if (codes[0] === "beside") off.clear();
    for (const code of codes) off[were ? "delete" : "add"](code);
    this.explorer.set({ off: [...off].join("_") });
  }

  show() {
    const { state, server, kept } = this.explorer;
    if (!this.listed) this.list();
    const off = new Set(this.off);
    for (const button of get("switch-list").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.dataset.codes.split("_").every((code) => off.has(code))));
      button.disabled = !server;
    }
    const change = state.change in CHANGE_NAMES ? state.change : "zero";
    get("change").value = change;
    get("factor").value = state.factor;
    get("factor").hidden = change !== "scale";
    for (const id of ["change", "factor", "all-on"]) get(id).disabled = !server;
    const { factor, place } = state, switches = [...off].map((code) => this.switches.get(code)), what = off.has("beside") ? { beside: 1 } : { switches, change, factor };
    if (!switches.length) this.drop();
    else if (server) this.ask({ ...what, ...(place === null ? {} : { place }) }, (body, signal) => this.answers(body, signal));
    if (kept.interventions) this.showEffects(kept.interventions);
    get("switch-effects").hidden = get("switch-next-box").hidden = !kept.interventions;
  }

  list() {
    const list = document.createDocumentFragment();
    const row = (name, codes) => {
      const buttons = codes.map((code, number) => element("button", { text: `${number}`, title: code, "data-codes": code, "aria-label": `${name} ${number}` }));
      if (codes.length > 1) buttons.push(element("button", { text: "all", "data-codes": codes.join("_"), "aria-label": `${name}, all` }));
      list.append(element("div", { className: "switches", role: "group", "aria-label": name }, element("span", { text: name.replace(/^\S+ /, "") }), ...buttons));
    };
    if (this.recording.beside) {
      row("the model beside", ["beside"]);
      list.querySelector("button").textContent = "B";
    }
    let layer = null;
    for (const heads of this.recording.heads) {
      if (heads.layer !== layer) list.append(element("h2", { className: "title", text: (layer = heads.layer) }));
      const found = [...switchesOf(heads)];
      for (const mediator of heads.mediators) {
        const name = { head: `${heads.kind} heads`, relation: "relations", symbol: "symbols of head" }[mediator];
        row(`${layer} ${name}`, found.flatMap(([code, one]) => (one.mediator === mediator ? [code] : [])));
      }
    }
    get("switch-list").replaceChildren(list);
    this.listed = true;
  }

  // The effects of switches, once they have been as they are for a moment.
  async* answers(body, signal) {
    await new Promise((then) => setTimeout(then, PATIENCE));
    if (!signal.aborted) yield await this.explorer.server.ask("intervene", body, signal);
  }

  drop() {
    const { server, kept } = this.explorer;
    if (server) kept.interventions = null;
    if (this.asking) this.asking.abort();
    this.asked = null;
    get("switch-busy").hidden = true;
    get("switch-note").textContent = "Switch heads, relations or symbols off to begin.";
  }

  showEffects(found) {
    const { loss, divergence, tokens, place, losses } = found, { look } = this.explorer;
    const change = (value) => (loss.before === null ? "" : signed(value - loss.before));
    const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length, names = namesOf(found), { length } = names;
    const range = (values, shown) => `${shown(Math.min(...values))} to ${shown(Math.max(...values))}`;
    const rows = [[names[0], loss.before, ""], [names[1], loss.after, divergence.after]];
    fillTable(get("switch-losses"), `Loss in nats a token, and divergence of the predictions from those of ${length > 2 ? "the model as it is" : "A"}`,
      ["model", "loss", "change", "divergence"], [
        ...rows.map(([name, value, far]) => [name, value === null ? "–" : written(value), far === "" ? "" : change(value), far === "" ? "" : written(far)]),
        ...(length < 3 ? [] : [[`random direction, mean of ${loss.controls.length}`, loss.before === null ? "–" : written(mean(loss.controls)), loss.before === null ? "" : change(mean(loss.controls)), written(mean(divergence.controls))],
        ["random direction, range", loss.before === null ? "" : range(loss.controls, written), loss.before === null ? "" : range(loss.controls, change), range(divergence.controls, written)]]),
      ]);
    get("switch-note").textContent = this.said(found);
    get("switch-figure").replaceChildren(this.drawing(found).element);
    const changes = losses.after.map((value, token) => value - losses.before[token]);
    const scale = { most: Math.max(1e-9, ...changes.map(Math.abs)), diverging: true };
    get("switch-scale").textContent = `Each token is coloured by how much worse (orange) or better (blue) it is predicted, up to ${written(scale.most)} nats. Choose one to see what is predicted after it.`;
    tokenElements(tokens, get("switch-text")).forEach((token, number) => {
      token.classList.toggle("receiver", number === place);
      if (!number) return;
      dye(token, colourOf(changes[number - 1], scale, { ...look, scale: "linear", gain: 1 }));
      token.title = `${number} ${tokens[number]}: loss ${written(losses.before[number - 1])}, ${names[1]} ${signed(changes[number - 1])}${length < 3 ? "" : `, random direction ${signed(losses.control[number - 1] - losses.before[number - 1])}`}`;
    });
    fillTable(get("switch-next"), `Tokens after ${place} “${tokens[place]}”`, ["token", ...names],
      found.next.map((one) => [isolated(one.token), ...sharesOf(one).map(percent)]));
  }

  // The finding in a sentence, after what was done.
  said({ loss, switched }) {
    const note = `It is a finding on one text; measure_effects takes many. Changed: ${switched}.`;
    if (loss.before === null) return `A text of one token has no loss. ${note}`;
    if (!loss.controls.length) return `Of each token, B (${switched}) has a loss that differs from that of A by ${signed(loss.after - loss.before)} nats, the mean over this text.`;
    const size = Math.abs(loss.after - loss.before), controls = loss.controls.map((value) => Math.abs(value - loss.before));
    const larger = controls.filter((value) => value >= size).length;
    const how = larger ? `${larger} of ${controls.length} random directions change it as much` : `none of ${controls.length} random directions changes it as much`;
    return `The loss changes by ${signed(loss.after - loss.before)} nats a token; of changes as large, ${how}. ${note}`;
  }

  // Changes of the loss on a line, and bars of the likeliest next tokens.
  drawing({ loss, next, tokens, place, switched }) {
    const { theme } = this.explorer.look, names = namesOf({ loss }), wide = 460, left = 104, right = 44, bar = 8, row = names.length * bar + 8, top = loss.before === null ? 40 : 130;
    const drawing = new Drawing(wide, top + next.length * row + 14, `Effect of ${switched}`, theme), { marks } = drawing;
    const room = wide - left - right;
    if (loss.before !== null) {
      const changes = [loss.after, ...loss.controls].map((value) => value - loss.before);
      const most = Math.max(1e-9, ...changes.map(Math.abs)) * 1.1, x = (value) => left + (room * (value / most + 1)) / 2;
      drawing.text(10, 20, "Change of the loss, nats a token", { "font-weight": 600 });
      drawing.line(left, 46, wide - right, 46);
      drawing.line(x(0), 34, x(0), 58, { stroke: drawing.faint });
      for (const value of [-most, 0, most]) drawing.text(x(value), 74, value ? signed(value) : "0", { "text-anchor": "middle", fill: drawing.faint, "font-size": 11 });
      changes.slice(1).forEach((value) => drawing.add("circle", { cx: x(value), cy: 46, r: 5, fill: "none", stroke: marks[2], "stroke-width": 1.6 }));
      drawing.add("path", { d: `M${x(changes[0])},38 l7,8 l-7,8 l-7,-8 z`, fill: marks[1] });
      this.legend(drawing, left, 20 + 74, names, loss.controls.length);
    }
    drawing.text(10, top - 6, `Probability of the token after ${place} “${tokens[place]}”`, { "font-weight": 600 });
    const largest = Math.max(...next.flatMap(sharesOf));
    next.forEach((one, number) => {
      const y = top + 6 + number * row;
      drawing.text(left - 8, y + 1.5 * bar + 4, one.token, { "text-anchor": "end" });
      sharesOf(one).forEach((share, which) => {
        const length = (room * share) / largest;
        drawing.rect(left, y + which * bar, length, bar - 1, marks[which]);
        if (which < 2) drawing.text(left + length + 4, y + which * bar + 7, share.toFixed(3), { "font-size": 9, fill: drawing.faint });
      });
    });
    return drawing;
  }

  /** @type {(drawing: Drawing, x: number, y: number, names: string[], controls: number) => void} */
  legend(drawing, x, y, [before, after, random], controls) {
    const { marks } = drawing;
    [[before, marks[0]], [`${after} ◆`, marks[1]], ...(random ? [[`same change, ${random} ○ (${controls})`, marks[2]]] : [])].forEach(([name, fill], number) => {
      const at = x + [0, 70, 160][number] - 70;
      drawing.rect(at, y - 9, 10, 10, fill);
      drawing.text(at + 14, y, name, { "font-size": 11 });
    });
  }

  get exported() {
    const found = this.explorer.kept.interventions;
    if (!found) throw new Error("There are no effects to save: nothing is switched.");
    const { losses, tokens, switched } = found;
    const rows = losses.before.map((value, place) => [place + 1, tokens[place + 1], value, losses.after[place], losses.control[place], switched]);
    return {
      title: "interventions", drawing: () => this.drawing(found),
      numbers: () => ({ headings: ["place", "token", "loss", "loss_switched", "loss_random_direction", "switched"], rows }),
    };
  }
}
