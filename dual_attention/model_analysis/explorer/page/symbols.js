// The symbols that a library lends to tokens: how much each is used, and which tokens receive it.

class SymbolPage {
  constructor(recording, on) {
    this.recording = recording;
    this.layers = recording.heads.filter((heads) => heads.assignment);
    this.on = on;
    this.get = (id) => document.getElementById(id);
    const choose = (name, id) => this.get(id).addEventListener("change", () => on.choose({ [name]: Number(this.get(id).value) }));
    if (!SymbolPage.listening) {
      choose("layer", "symbol-layer");
      choose("part", "symbol-head");
      choose("symbol", "symbol");
      const canvas = this.get("usage").querySelector("canvas");
      const at = (event) => {
        const box = canvas.getBoundingClientRect();
        return Math.floor(((event.clientX - box.left) / box.width) * SymbolPage.shown.count);
      };
      canvas.addEventListener("click", (event) => on.choose({ symbol: at(event) }));
      canvas.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        const { count, symbol } = SymbolPage.shown;
        on.choose({ symbol: (symbol + step + count) % count });
      });
      this.get("symbol-text").addEventListener("click", (event) => {
        const token = event.target.closest("bdi");
        if (token) SymbolPage.shown.page.chooseToken(Number(token.dataset.place));
      });
      SymbolPage.listening = true;
    }
  }

  options(id, names, chosen) {
    const select = this.get(id);
    select.replaceChildren(...names.map(([value, name]) => new Option(name, value, false, value === chosen)));
  }

  chooseToken(place) {
    this.token = place;
    this.on.choose({ symbol: this.heads.assignment.symbols[this.index(place, 0)] });
  }

  index(place, rank) {
    const [, tokens, kept] = this.heads.assignment.symbols.shape;
    return (this.part * tokens + place) * kept + rank;
  }

  show(state, look) {
    const some = this.layers.length > 0;
    for (const id of ["symbol-controls", "usage", "symbol-text", "symbol-tokens", "token-symbols"]) this.get(id).hidden = !some;
    if (!some) {
      const relational = this.recording.heads.some((heads) => heads.kind === "relational");
      this.get("symbol-note").textContent = relational
        ? "This model assigns symbols by position, not from a library, so there is no assignment to show."
        : "This model has no relational heads, and so no symbols.";
      return;
    }
    this.heads = this.layers.find((heads) => heads.place === state.layer) || this.layers[0];
    const { usage, symbols, weights } = this.heads.assignment, [parts, count] = usage.shape, [, tokens, kept] = symbols.shape;
    this.part = Math.min(state.part, parts - 1);
    const used = usage.subarray(this.part * count, (this.part + 1) * count);
    const symbol = state.symbol !== null && state.symbol < count ? state.symbol : used.indexOf(Math.max(...used));
    SymbolPage.shown = { page: this, count, symbol };
    this.options("symbol-layer", this.layers.map((heads) => [heads.place, heads.layer]), this.heads.place);
    this.options("symbol-head", [...Array(parts).keys()].map((part) => [part, `${part}`]), this.part);
    this.options("symbol", [...Array(count).keys()].map((number) => [number, `${number}`]), symbol);
    this.get("symbol-note").textContent =
      `Each token receives a mixture of the ${count} symbols of a library; each of ${parts} parts of the symbol is ` +
      `mixed by itself. Of each token the ${kept} heaviest symbols are kept.`;
    this.drawUsage(used, symbol);
    const labels = this.recording.sequences[this.heads.senders], of = new Float32Array(tokens);
    for (let place = 0; place < tokens; place++) {
      for (let rank = 0; rank < kept; rank++) {
        if (symbols[this.index(place, rank)] === symbol) of[place] = weights[this.index(place, rank)];
      }
    }
    const box = this.get("symbol-text"), scale = { most: Math.max(...of), diverging: false };
    tokenElements(labels, box).forEach((element, place) => {
      const colour = colourOf(of[place], scale, { ...look, scale: "linear", gain: 1 });
      element.style.backgroundColor = `rgb(${colour})`;
      element.style.color = inkOn(colour);
    });
    const nearest = [...of.keys()].filter((place) => of[place] > 0).sort((a, b) => of[b] - of[a]).slice(0, 20);
    fillTable(this.get("symbol-tokens"), `Tokens nearest to symbol ${symbol}`, ["place", "token", "weight"],
      nearest.map((place) => [`${place}`, isolated(labels[place]), written(of[place])]));
    const token = this.token !== undefined && this.token < tokens ? this.token : nearest[0] || 0;
    fillTable(this.get("token-symbols"), `Symbols of token ${token} “${labels[token]}”`, ["symbol", "weight"],
      [...Array(kept).keys()].map((rank) => [`${symbols[this.index(token, rank)]}`, written(weights[this.index(token, rank)])]));
  }

  drawUsage(used, symbol) {
    const figure = this.get("usage"), canvas = figure.querySelector("canvas"), ratio = window.devicePixelRatio || 1;
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
}
