// Generate: a continuation of the text, token by token, and what each step attended to.

import { unpacked } from "./arrays.js";
import { colourOf, fillScale, paint } from "./colours.js";
import { mapDrawing } from "./drawing.js";
import { dye, onToken, tokenElements } from "./links.js";
import { AnswerPage } from "./places.js";
import { INITIAL } from "./state.js";
import { fillOptions, fillTable, get, isolated, written } from "./tables.js";

/** @import { Explorer } from "./main.js" */

const MOST_ROWS = 400; // pixels of the picture of all steps

export class GeneratePage extends AnswerPage {
  /** @param {Explorer} explorer */
  constructor(explorer) {
    super(explorer, "generation", "generate");
    for (const name of ["tokens", "temperature", "top_k", "seed"]) {
      get(name).addEventListener("change", () => explorer.set({ generated: 0, [name]: get(name).value === "" ? INITIAL[name] : Number(get(name).value) }));
    }
    get("generate").addEventListener("click", () => this.start(null));
    get("stop").addEventListener("click", () => this.running && this.running.abort());
    get("record-generated").addEventListener("click", () => {
      get("prompt").value = this.found.text;
      get("ask").requestSubmit();
    });
    get("step-map").addEventListener("change", () => explorer.set({ map: Number(get("step-map").value) }));
    onToken(get("generated"), (place) => place >= this.prompt && explorer.set({ step: place - this.prompt }));
    get("steps").addEventListener("click", (event) => {
      const box = get("steps").getBoundingClientRect();
      explorer.set({ step: Math.min(this.found.steps.length - 1, Math.floor(((event.clientY - box.top) / box.height) * this.found.steps.length)) });
    });
  }

  load() {
    if (this.running) this.running.abort();
  }

  get found() {
    return this.explorer.kept.generation || null;
  }

  // Tokens of the text that was continued.
  get prompt() {
    return this.found.labels.length - this.found.steps.length;
  }

  start(step) {
    const { explorer } = this, { tokens, temperature, top_k, seed } = explorer.state;
    Object.assign(explorer.state, { step, generated: 1 });
    let found = null;
    this.follow({ text: explorer.recording.source, tokens, temperature, top_k, seed }, (part) => {
      if (part.sites) found = explorer.kept.generation = { labels: part.labels, sites: part.sites, most: part.most, steps: [] };
      else if (part.ended) Object.assign(found, part);
      else {
        found.labels.splice(part.from, found.labels.length - part.from, ...part.labels);
        found.steps.push({ probability: part.probability, likeliest: part.likeliest, maps: part.maps });
      }
      this.showSoon();
    }, (error) => {
      if (!found) explorer.state.generated = 0;
      else if (error.name === "AbortError") found.ended = "it was stopped";
    });
  }

  // Tokens may come faster than frames.
  showSoon() {
    if (this.soon) return;
    this.soon = requestAnimationFrame(() => {
      this.soon = 0;
      if (this.explorer.page === "generate") this.show();
    });
  }

  show() {
    const { state, server } = this.explorer, { found } = this;
    if (server && state.generated && !found && !this.running) this.start(state.step);
    for (const name of ["tokens", "temperature", "top_k", "seed"]) {
      get(name).value = state[name];
      get(name).disabled = !server;
    }
    get("generate").disabled = !server || Boolean(this.running);
    get("stop").disabled = !this.running;
    get("generate-busy").hidden = !this.running;
    if (found) [get("generate-busy").max, get("generate-busy").value] = [found.most, found.steps.length];
    const some = Boolean(found && found.steps.length);
    get("generated-box").hidden = get("step-box").hidden = !some;
    get("record-generated").hidden = !server || !found || !found.text || Boolean(this.running);
    get("generate-note").textContent = !found ? "The model continues the text above. Choose a new token to see what the step that drew it attended to."
      : `${found.steps.length} of at most ${found.most} tokens${found.ended ? `: ${found.ended}` : ""}. Choose one to see what the token before it attended to when it was chosen.`;
    if (some) this.showStep();
  }

  // The maps that steps have: of each site, its relations and its heads.
  get maps() {
    return this.found.sites.flatMap((site, place) => [["relations", "relation"], ["weights", `${site.kind} head`]].flatMap(([name, word]) => (
      [...Array(site[name]).keys()].map((number) => ({ place, name, number, title: `${site.layer} ${word} ${number}` })))));
  }

  // Values of a step's map for all tokens before it; those that it did not see are not numbers.
  row(step, { place, name, number }) {
    const { maps } = this.found.steps[step], values = new Float32Array(this.prompt + step).fill(NaN);
    const rows = maps && maps[place][name];
    if (!rows) return values;
    if (!rows.read) Object.defineProperty(rows, "read", { value: { values: unpacked(rows.values), scales: unpacked(rows.scales) } });
    const [, width] = rows.values.shape, { first } = maps[place];
    for (let sender = 0; sender < width; sender++) values[first + sender] = rows.read.values[number * width + sender] * rows.read.scales[number];
    return values;
  }

  get step() {
    const { step } = this.explorer.state, last = this.found.steps.length - 1;
    return step === null ? last : Math.min(step, last);
  }

  get map() {
    const { maps } = this;
    return maps[Math.min(this.explorer.state.map, maps.length - 1)];
  }

  showStep() {
    const { found, step, map, prompt } = this, { labels, steps } = found, look = { ...this.explorer.look, scale: "root" }; // one scale for all steps
    fillOptions(get("step-map"), this.maps.map((one, number) => [number, one.title]), this.maps.findIndex((one) => one.title === map.title));
    const row = this.row(step, map), scale = this.scaleOf(this.grid);
    fillScale(get("step-scale"), scale, look, "Square root. A line for each step, from the first above to the last below.");
    tokenElements(labels, get("generated")).forEach((token, place) => {
      token.classList.toggle("receiver", place === prompt + step);
      token.classList.toggle("sender", place === prompt + step - 1);
      token.classList.toggle("new", place >= prompt);
      if (!(row[place] === row[place] && place < row.length)) return;
      dye(token, colourOf(row[place], scale, look));
      token.title = `${place} ${labels[place]}: ${written(row[place])}`;
    });
    const seen = [...row.keys()].filter((place) => row[place] === row[place]).sort((a, b) => Math.abs(row[b]) - Math.abs(row[a]));
    fillTable(get("step-senders"), steps[step].maps ? `What token ${prompt + step - 1} “${labels[prompt + step - 1]}” gets, ${map.title}` : "The maps of this step were too large to send.",
      ["place", "sender", "value"], seen.slice(0, 10).map((place) => [`${place}`, isolated(labels[place]), written(row[place])]));
    fillTable(get("step-likeliest"), `Likeliest tokens in the place of ${prompt + step} “${labels[prompt + step]}”, whose probability was ${written(steps[step].probability)}`,
      ["token", "probability"], steps[step].likeliest.map(([label, share]) => [isolated(label), written(share)]));
    this.drawSteps(map, scale, look);
  }

  scaleOf({ values }) {
    let most = 0, least = 0;
    for (const value of values) if (value === value) [most, least] = [Math.max(most, value), Math.min(least, value)];
    return { most: Math.max(most, -least), diverging: least < 0 };
  }

  // A line for each step, from the first above to the last below.
  get grid() {
    const { steps, labels } = this.found, wide = labels.length - 1, values = new Float32Array(steps.length * wide).fill(NaN);
    steps.forEach((_, step) => values.set(this.row(step, this.map), step * wide));
    return { values, high: steps.length, wide };
  }

  drawSteps(map, scale, look) {
    const { grid: { values, high, wide } } = this, canvas = get("steps");
    [canvas.width, canvas.height] = [wide, high];
    canvas.getContext("2d").putImageData(paint(values, high, wide, scale, look), 0, 0);
    canvas.style.height = `${high * Math.max(1, Math.min(12, Math.floor(MOST_ROWS / high)))}px`;
    canvas.setAttribute("aria-label", `${map.title}: ${high} steps, from top to bottom, and the tokens before each, from left to right. Arrow keys choose a step.`);
  }

  key(event) {
    if (!this.found || !this.found.steps.length) return false;
    const far = event.shiftKey ? 10 : 1, last = this.found.steps.length - 1, to = (step) => this.explorer.set({ step: Math.max(0, Math.min(last, step)) });
    const keys = {
      ArrowLeft: () => to(this.step - far), ArrowRight: () => to(this.step + far), ArrowUp: () => to(this.step - far), ArrowDown: () => to(this.step + far),
      "[": () => this.explorer.set({ map: Math.max(0, this.explorer.state.map - 1) }), "]": () => this.explorer.set({ map: Math.min(this.maps.length - 1, this.explorer.state.map + 1) }),
    };
    if (!(event.key in keys)) return false;
    keys[event.key]();
    return true;
  }

  // The chosen map, of all steps.
  get exported() {
    if (!this.found || !this.found.steps.length) throw new Error("There is nothing to save: no tokens have been generated.");
    const { map, found: { labels, steps }, prompt } = this;
    const rows = () => steps.flatMap(({ probability }, step) => [...this.row(step, map)].flatMap((value, place) => (
      value === value ? [[step, labels[prompt + step], probability, place, labels[place], value]] : [])));
    return { title: `steps ${map.title}`, numbers: () => ({ headings: ["step", "token", "probability", "sender", "sender_token", "value"], rows: rows() }), drawing: () => this.drawing() };
  }

  drawing() {
    const { grid, map: { title }, found: { labels }, prompt } = this;
    const shown = { receivers: labels.slice(prompt), senders: labels.slice(0, -1) };
    return mapDrawing(`${title}, a line for each step`, shown, grid, this.scaleOf(grid), { ...this.explorer.look, scale: "root" });
  }
}
