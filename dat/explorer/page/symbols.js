// The symbols that a library lends to tokens: how much each is used, and which tokens receive it.

import { colourOf, fillScale } from "./colours.js";
import { Drawing } from "./drawing.js";
import { withIndices } from "./explanations.js";
import { MOST_NUMBERS } from "./exports.js";
import { dye, onToken, tokenElements } from "./links.js";
import { headsOf } from "./maps.js";
import { fillOptions, fillTable, get, isolated, written } from "./tables.js";

/** @import { Explorer, Recording } from "./main.js" */

export class SymbolPage {
  count; symbol; used; tokens; // of what is shown

  /** @param {Explorer} explorer */
  constructor(explorer) {
    this.on = { choose: (change) => explorer.set(change) };
    this.explorer = explorer;
    const choose = (name, id) => get(id).addEventListener("change", () => this.on.choose({ [name]: Number(get(id).value) }));
    get("symbol-layer").addEventListener("change", () => this.on.choose({ layer: get("symbol-layer").value }));
    choose("part", "symbol-head");
    choose("symbol", "symbol");
    const canvas = get("usage").querySelector("canvas");
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      this.on.choose({ symbol: Math.floor(((event.clientX - box.left) / box.width) * this.count) });
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      this.on.choose({ symbol: (this.symbol + step + this.count) % this.count });
    });
    onToken(get("symbol-text"), (place) => this.chooseToken(place));
  }

  // Arrow keys choose a token.
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.heads) return false;
    this.chooseToken(Math.max(0, Math.min(this.tokens - 1, (this.token ?? -1) + step)));
    return true;
  }

  /** @param {Recording} recording */
  load(recording) {
    this.recording = recording;
    this.layers = recording.heads.filter((heads) => heads.assignment && heads.here);
    this.token = undefined;
    this.heads = null;
  }

  resize() {
    this.show();
  }

  chooseToken(place) {
    const weights = this.weights(place, place + 1);
    this.token = place;
    this.on.choose({ symbol: weights.indexOf(Math.max(...weights)) });
  }

  // Weights of symbols from c0 to c1 that tokens from r0 to r1 receive in the chosen part, token by token.
  weights(r0, r1, c0 = 0, c1 = this.count) {
    const found = new Float32Array((r1 - r0) * (c1 - c0)), { weights, visible } = this.heads.assignment;
    weights.fill(this.part, visible, r0, r1, c0, c1, found, this.held);
    return found;
  }

  show() {
    const { state, look } = this.explorer;
    const some = this.layers.length > 0;
    for (const id of ["symbol-controls", "usage", "symbol-text", "symbol-tokens", "token-symbols"]) get(id).hidden = !some;
    if (!some) {
      const relational = this.recording.heads.some((heads) => heads.kind === "relational");
      get("symbol-note").textContent = relational
        ? "This model assigns symbols by position, not from a library, so there is no assignment to show."
        : "This model has no relational heads, and so no symbols.";
      return;
    }
    this.heads = headsOf(this.layers, state);
    const { usage, weights: { queries: { rows: tokens } } } = this.heads.assignment, [parts, count] = usage.shape;
    this.part = Math.min(state.part, parts - 1);
    this.held = this.heads.assignment.weights.part(this.part);
    if (!this.held) {
      get("symbol-note").textContent = "The symbols are on their way.";
      this.heads.assignment.weights.load(this.part).then(() => this.explorer.show(), () => {});
      for (const id of ["usage", "symbol-text", "symbol-tokens", "token-symbols"]) get(id).hidden = true;
      return;
    }
    const used = usage.subarray(this.part * count, (this.part + 1) * count);
    const symbol = state.symbol !== null && state.symbol < count ? state.symbol : used.indexOf(Math.max(...used));
    Object.assign(this, { count, symbol, used, tokens });
    fillOptions(get("symbol-layer"), this.layers.map((heads) => [heads.short, heads.layer]), this.heads.short);
    fillOptions(get("symbol-head"), [...Array(parts).keys()].map((part) => [part, `${part}`]), this.part);
    fillOptions(get("symbol"), [...Array(count).keys()].map((number) => [number, `${number}`]), symbol);
    get("symbol-note").replaceChildren(...withIndices(`s_j = Σ_k w_jk c_k: the symbol of token j is a mixture of the K = ${count} symbols c_k of a library${parts > 1 ? `, each of its ${parts} parts by itself` : ""}. The weights w_jk have no unit and add up to 1 for each token.`));
    this.drawUsage(used, symbol);
    const labels = this.recording.sequences[this.heads.senders], of = this.weights(0, tokens, symbol, symbol + 1);
    const box = get("symbol-text"), scale = { most: Math.max(...of), diverging: false }, plain = { ...look, scale: "linear", gain: 1 };
    fillScale(get("symbol-scale"), scale, plain, `Weight of symbol ${symbol} in each token; an even share of ${count} symbols is ${written(1 / count)}.`);
    tokenElements(labels, box).forEach((element, place) => {
      dye(element, colourOf(of[place], scale, plain));
      element.classList.toggle("receiver", place === this.token);
    });
    const strongest = (values) => [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, 20);
    const nearest = strongest(of), token = this.token !== undefined && this.token < tokens ? this.token : nearest[0];
    fillTable(get("symbol-tokens"), `Tokens nearest to symbol ${symbol}, ${nearest.length} of ${tokens}`, ["place", "token", "weight"],
      nearest.map((place) => [`${place}`, isolated(labels[place]), written(of[place])]));
    const mixed = this.weights(token, token + 1), heaviest = strongest(mixed);
    fillTable(get("token-symbols"), `Symbols of token ${token} “${labels[token]}”, ${heaviest.length} of ${count}`, ["symbol", "weight"],
      heaviest.map((number) => [`${number}`, written(mixed[number])]));
  }

  drawUsage(used, symbol) {
    const figure = get("usage"), canvas = figure.querySelector("canvas"), ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight, most = Math.max(...used);
    figure.querySelector("figcaption").textContent =
      `Use of the library: mean weight of each symbol over the text, up to ${written(most)}`;
    canvas.setAttribute("aria-label", `Mean weight of ${used.length} symbols; symbol ${symbol}, ${written(used[symbol])}, is chosen.`);
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d"), bar = width / used.length, style = getComputedStyle(document.documentElement);
    pen.scale(ratio, ratio);
    const even = height - ((height - 4) * (1 / used.length)) / most;
    used.forEach((weight, number) => {
      pen.fillStyle = style.getPropertyValue(number === symbol ? "--accent" : "--faint");
      const high = ((height - 4) * weight) / most;
      pen.fillRect(number * bar + (bar > 3 ? 1 : 0), height - high, Math.max(0.5, bar - (bar > 3 ? 2 : 0)), high);
    });
    pen.strokeStyle = style.getPropertyValue("--ink");
    pen.setLineDash([3, 4]);
    pen.beginPath();
    pen.moveTo(0, even);
    pen.lineTo(width, even);
    pen.stroke();
  }

  // Numbers: of all tokens, the weights of all symbols, the heaviest first.
  get exported() {
    if (!this.heads) throw new Error("There are no symbols to save.");
    const { tokens, count } = this, labels = this.recording.sequences[this.heads.senders];
    const title = `${this.heads.layer} symbols, part ${this.part}`;
    const rows = () => {
      if (tokens * count > MOST_NUMBERS) throw new Error("CSV: there are too many tokens and symbols; show a shorter text");
      return [...Array(tokens).keys()].flatMap((place) => {
        const weights = this.weights(place, place + 1);
        return [...weights.keys()].sort((a, b) => weights[b] - weights[a]).map((symbol, rank) => [place, labels[place], rank + 1, symbol, weights[symbol]]);
      });
    };
    return {
      title, numbers: () => ({ headings: ["place", "token", "rank", "symbol", "weight"], rows: rows() }),
      drawing: () => this.drawing(title),
    };
  }

  drawing(title) {
    const { used, symbol, explorer: { theme } } = this, width = Math.max(320, used.length * 8), high = 120, most = Math.max(...used);
    const drawing = new Drawing(width + 20, high + 50, title, theme), bar = width / used.length;
    drawing.text(10, 20, `${title}: mean weight of each symbol, up to ${written(most)}; ${symbol} is chosen`);
    used.forEach((weight, number) => {
      const tall = (high * weight) / most;
      drawing.rect(10 + number * bar, 35 + high - tall, bar * 0.8, tall, drawing.marks[number === symbol ? 1 : 0]);
    });
    return drawing;
  }
}
