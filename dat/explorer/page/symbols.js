// The symbols that a library lends to tokens: how much each is used, and which tokens receive it.

class SymbolPage {
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
    get("symbol-text").addEventListener("click", (event) => {
      const token = event.target.closest("bdi");
      if (token) this.chooseToken(Number(token.dataset.place));
    });
  }

  load(recording) {
    this.recording = recording;
    this.layers = recording.heads.filter((heads) => heads.assignment);
    this.token = undefined;
    this.heads = null;
  }

  resize() {
    this.show();
  }

  chooseToken(place) {
    this.token = place;
    this.on.choose({ symbol: this.heads.assignment.symbols[this.index(place, 0)] });
  }

  index(place, rank) {
    const [, tokens, kept] = this.heads.assignment.symbols.shape;
    return (this.part * tokens + place) * kept + rank;
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
    const { usage, symbols, weights } = this.heads.assignment, [parts, count] = usage.shape, [, tokens, kept] = symbols.shape;
    this.part = Math.min(state.part, parts - 1);
    const used = usage.subarray(this.part * count, (this.part + 1) * count);
    const symbol = state.symbol !== null && state.symbol < count ? state.symbol : used.indexOf(Math.max(...used));
    Object.assign(this, { count, symbol, used });
    fillOptions(get("symbol-layer"), this.layers.map((heads) => [heads.short, heads.layer]), this.heads.short);
    fillOptions(get("symbol-head"), [...Array(parts).keys()].map((part) => [part, `${part}`]), this.part);
    fillOptions(get("symbol"), [...Array(count).keys()].map((number) => [number, `${number}`]), symbol);
    get("symbol-note").textContent =
      `Each token receives a mixture of the ${count} symbols of a library; each of ${parts} parts of the symbol is ` +
      `mixed by itself. Of each token the ${kept} heaviest symbols are kept.`;
    this.drawUsage(used, symbol);
    const labels = this.recording.sequences[this.heads.senders], of = new Float32Array(tokens);
    for (let place = 0; place < tokens; place++) {
      for (let rank = 0; rank < kept; rank++) {
        if (symbols[this.index(place, rank)] === symbol) of[place] = weights[this.index(place, rank)];
      }
    }
    const box = get("symbol-text"), scale = { most: Math.max(...of), diverging: false };
    tokenElements(labels, box).forEach((element, place) => {
      const colour = colourOf(of[place], scale, { ...look, scale: "linear", gain: 1 });
      element.style.backgroundColor = `rgb(${colour})`;
      element.style.color = inkOn(colour);
    });
    const nearest = [...of.keys()].filter((place) => of[place] > 0).sort((a, b) => of[b] - of[a]).slice(0, 20);
    fillTable(get("symbol-tokens"), `Tokens nearest to symbol ${symbol}`, ["place", "token", "weight"],
      nearest.map((place) => [`${place}`, isolated(labels[place]), written(of[place])]));
    const token = this.token !== undefined && this.token < tokens ? this.token : nearest[0] || 0;
    fillTable(get("token-symbols"), `Symbols of token ${token} “${labels[token]}”`, ["symbol", "weight"],
      [...Array(kept).keys()].map((rank) => [`${symbols[this.index(token, rank)]}`, written(weights[this.index(token, rank)])]));
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

  // Numbers: of all tokens, the symbols that are kept.
  get exported() {
    if (!this.heads) throw new Error("There are no symbols to save.");
    const { symbols, weights } = this.heads.assignment, [, tokens, kept] = symbols.shape, labels = this.recording.sequences[this.heads.senders];
    const title = `${this.heads.layer} symbols, part ${this.part}`;
    const rows = [...Array(tokens).keys()].flatMap((place) => [...Array(kept).keys()].map((rank) => {
      const at = this.index(place, rank);
      return [place, labels[place], rank + 1, symbols[at], weights[at]];
    }));
    return {
      title, numbers: () => ({ headings: ["place", "token", "rank", "symbol", "weight"], rows }),
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
