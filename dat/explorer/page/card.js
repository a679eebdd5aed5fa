// Cards: one relation on one page, with a name and a note of one's own, as a file that can be opened again.

import { unpacked } from "./arrays.js";
import { colourOf } from "./colours.js";
import { withIndices } from "./explanations.js";
import { fileName, save } from "./exports.js";
import { keyOf, RelationPage } from "./relations.js";
import { PATIENCE } from "./switches.js";
import { element, fillTable, get, isolated, percent, signed, written } from "./tables.js";
import { framedPicture } from "./vision.js";

/** @import { Explorer, Recording } from "./main.js" */

const MOST_CARD = 2 ** 20; // bytes of a file
const PAIR_SIDE = 108; // pixels of a picture
const AREA_OF_TEXTS = "AUC: how often a pair with the label has a larger value than one without it that is exactly as far apart (same token, same word), or as alike (previous, near); ½ says nothing. p: of the labels shuffled, against the best of all relations of the layer. Beyond: further from ½ than all other scores.";
const AREA_OF_PICTURES = "AUC: how often a pair of equal patches has a larger value than one of different patches at the same two places; ½ says nothing. Beyond: further from ½ than all other scores.";

/** @type {(range: (number | null)[]) => string} */
const spanOf = ([low, high]) => (low === null ? "–" : `${written(low)} to ${written(high)}`);

export class CardPage extends RelationPage {
  askedFor; // key of the relation whose card is awaited

  /** @param {Explorer} explorer */
  constructor(explorer) {
    super(explorer, "cards", "card", "card-relations");
    for (const name of ["name", "note"]) get(`card-${name}`).addEventListener("input", () => this.write(name, get(`card-${name}`).value));
    get("card-save").addEventListener("click", () => this.save());
    get("card-open").addEventListener("change", async () => {
      const [file] = get("card-open").files;
      get("card-open").value = "";
      if (file) await this.open(file);
    });
    get("card-map").addEventListener("click", () => explorer.set({ page: this.recording.image ? "vision" : "relations", i: null, j: null, cell: null, x: 0, y: 0 }));
  }

  /** @param {Recording} recording */
  load(recording) {
    this.recording = recording;
    this.failed = null;
    if (this.asking) this.asking.abort();
    this.asking = null;
  }

  get relations() {
    return this.recording.heads.filter((heads) => heads.relations).flatMap((heads) => [...Array(heads.relations.maps).keys()].map((relation) => ({ layer: heads.layer, relation })));
  }

  get card() {
    return this.relations.length ? (this.explorer.kept.cards || {})[keyOf(this.chosen)] || null : null;
  }

  // What somebody wrote of the chosen relation: of the model, whatever the text.
  get own() {
    return (this.explorer.kept.notes || {})[keyOf(this.chosen)] || { name: "", note: "" };
  }

  write(part, value) {
    const { kept } = this.explorer;
    kept.notes = { ...kept.notes, [keyOf(this.chosen)]: { ...this.own, [part]: value } };
    if (part === "name") this.title();
  }

  async ask() {
    const { explorer, chosen } = this, key = keyOf(chosen), asking = new AbortController();
    if (this.asking) this.asking.abort();
    Object.assign(this, { asking, askedFor: key });
    explorer.complain("");
    await new Promise((then) => setTimeout(then, PATIENCE)); // while somebody steps from card to card
    if (asking.signal.aborted) return;
    try {
      const found = await explorer.server.ask("card", { text: this.recording.source, ...chosen }, asking.signal);
      explorer.kept.cards = { ...explorer.kept.cards, [key]: found };
    } catch (error) {
      if (error.name === "AbortError") return;
      this.failed = key;
      explorer.complain(error.message);
    }
    this.asking = null;
    if (explorer.page === "card") this.show();
  }

  // A card in a file, if it is one of this model.
  async open(file) {
    const { explorer } = this;
    try {
      if (file.size > MOST_CARD) throw new Error(`Card: expected at most ${MOST_CARD.toLocaleString("en")} bytes, got ${file.size.toLocaleString("en")}.`);
      const { name, note, ...card } = checkedCard(await file.text()), { weights } = this.recording.facts;
      if (weights && card.weights !== weights) throw new Error(`This card is of a model with the weights ${card.weights} (${card.model}); those of this one are ${weights}.`);
      if (!this.relations.some((one) => keyOf(one) === keyOf(card))) throw new Error(`This card is of ${card.layer} relation ${card.relation}, which is not among those shown.`);
      explorer.kept.cards = { ...explorer.kept.cards, [keyOf(card)]: card };
      explorer.kept.notes = { ...explorer.kept.notes, [keyOf(card)]: { name, note } };
      explorer.complain("");
      this.choose(card);
    } catch (error) {
      explorer.complain(error.message);
    }
  }

  save() {
    const { card, own } = this;
    save(fileName(own.name || `card ${card.layer} relation ${card.relation}`, "json"), new Blob([`${JSON.stringify({ ...card, ...own }, null, 1)}\n`], { type: "application/json" }));
  }

  show() {
    const { server } = this.explorer, none = !this.relations.length;
    get("card-tools").hidden = get("card-choice").hidden = get("card-own").hidden = none;
    get("card-open").disabled = !server;
    get("card-none").hidden = !none;
    if (none) {
      const heads = this.recording.heads.map((one) => `${one.layer} ${one.count} ${one.kind} heads`).join(", ");
      get("card-none").textContent = `Cards are of relations, and this model computes none. It has ${heads || "no heads of attention"}; see the pages Attention and What matters.`;
      get("card-busy").hidden = get("card-found").hidden = true;
      return;
    }
    const { chosen, card } = this, key = keyOf(chosen), { cards } = this.explorer.kept;
    if (!card && server && this.failed !== key && !(this.asking && this.askedFor === key)) this.ask();
    this.mark((one) => Boolean(server || cards[keyOf(one)]));
    get("card-busy").hidden = Boolean(card) || !this.asking;
    get("card-found").hidden = !card;
    get("card-save").disabled = !card;
    for (const name of ["name", "note"]) if (get(`card-${name}`) !== document.activeElement) get(`card-${name}`).value = this.own[name];
    this.title();
    if (card) this.showCard(card);
    this.showCorpus();
  }

  // What the relation does over a corpus, and where it fires there.
  showCorpus() {
    const { explorer, chosen } = this, { kept, server } = explorer, { corpus } = kept, key = keyOf(chosen), found = (kept.fires || {})[key];
    get("card-corpus").hidden = !corpus || !found;
    if (!corpus) return;
    if (!found) {
      if (server && this.firesOf !== key) {
        this.firesOf = key;
        server.ask("fires", chosen).then((fires) => {
          kept.fires = { ...kept.fires, [key]: fires };
          if (explorer.page === "card") this.show();
        }, (error) => explorer.complain(error.message));
      }
      return;
    }
    const { effects } = this, { heads, most } = this.headsBeside(corpus, chosen.layer);
    get("card-corpus-title").textContent = `Over ${corpus.source}`;
    fillTable(get("card-corpus-effects"), `Effect of removing it${heads ? `, beside the ${heads} heads of its layer` : ""}`, ["measure, nats", "mean", "95 % interval", "random directions", "beyond", "heads"], effects ? [1, 0].map((which) => [
      ["change of the loss", "divergence"][which], ...effects[which], heads ? spanOf(most[which]) : "–"]) : []);
    for (const [name, caption] of [["distances", "Distance"], ["receivers", "Receiver"], ["senders", "Sender"]]) {
      fillTable(get(`card-${name}`), `${caption}: share of the pairs where it fires, and of all`, [name.slice(0, -1), "fires", "all pairs"], (found[name] || []).map(([label, share, all]) => [isolated(name === "distances" && label > 1 ? `${label} to ${2 * label - 1}` : label), percent(share), percent(all)]));
    }
    for (const end of ["high", "low"]) get(`card-corpus-${end}`).replaceChildren(...(found.pairs || []).filter((entry) => entry.end === end).map((entry) => explorer.pages.dictionary.entryElement(entry, "a pair of the same text as far apart")));
  }

  // Change of the loss, and divergence, over a corpus: mean, interval, range of random directions, and whether it is beyond these.
  get effects() {
    const { chosen, explorer: { kept: { corpus } } } = this;
    const place = corpus ? corpus.parts.findIndex(({ mediator, layer, number }) => mediator === "relation" && layer === chosen.layer && number === chosen.relation) : -1;
    if (place < 0) return null;
    return [0, 1].map((which) => {
      const draws = corpus.controls[place].map((one) => one[which]), beyond = corpus.beyond[place][which];
      return [written(corpus.effects[place][which]), spanOf(corpus.intervals[place][which]), corpus.draws ? spanOf([Math.min(...draws), Math.max(...draws)]) : "–", beyond === null ? "" : beyond ? "yes" : "no"];
    });
  }

  // How many heads the layer has, and the least and the largest of their mean effects.
  headsBeside({ parts, effects }, layer) {
    const own = effects.filter((_, place) => parts[place].mediator === "head" && parts[place].layer === layer);
    return { heads: own.length, most: [0, 1].map((which) => [Math.min(...own.map((one) => one[which])), Math.max(...own.map((one) => one[which]))]) };
  }

  title() {
    const { layer, relation } = this.chosen;
    get("card-title").textContent = [this.own.name, `${layer} relation ${relation}`].filter(Boolean).join(" · ");
  }

  showCard(card) {
    const other = card.pictures || card.text === this.recording.source ? "" : " It is of another text than the one above.";
    const of = card.pictures ? `${card.pictures} ${card.pictures_of}` : `${card.tokens} tokens of one text; relations of other texts may differ`;
    get("card-about").replaceChildren(...withIndices(`${card.formula}: how receiver i compares with sender j; no unit. Measured in ${of}.${other}`));
    get("card-area").textContent = card.pictures ? AREA_OF_PICTURES : AREA_OF_TEXTS;
    fillTable(get("card-facts"), "Effect of removing it, and its own measures", ["measure", "value", "random directions", "meaning"], this.facts(card));
    const kinds = [...new Set(card.labels.flatMap((one) => Object.keys(one.controls || {})))], range = ([low, high]) => (low === high ? written(low) : `${written(low)} to ${written(high)}`);
    const shuffled = (...cells) => (card.pictures ? [] : cells); // labels of two objects of a picture are not
    fillTable(get("card-labels"), "How well it detects labels, beside the controls",
      ["label", "pairs", "AUC", ...shuffled("p"), ...kinds, "beyond"], card.labels.map((one) => (one.pairs
        ? [one.name, `${one.pairs}`, written(one.auc), ...shuffled(written(one.p)), ...kinds.map((kind) => (one.controls[kind] ? range(one.controls[kind]) : "")), one.beyond ? "yes" : "no"]
        : [one.name, "0", "–", ...shuffled(""), ...kinds.map(() => ""), ""])));
    const { dictionary } = this.explorer.pages;
    for (const end of ["high", "low"]) {
      const list = get(`card-${end}`);
      list.classList.toggle("pictures", Boolean(card.pictures));
      list.replaceChildren(...card.pairs.filter((entry) => entry.end === end).map((entry) => (card.pictures ? this.pictureEntry(card, entry) : dictionary.entryElement(entry))));
    }
    get("card-pairs-of").textContent = card.pictures
      ? "Of each picture its strongest pair of patches, framed, with its value and the right answer; smaller beside it, other pictures with objects at the same two places."
      : `Of ${card.pairs_of}; beside each, pairs about as far apart, of tokens about as frequent.`;
  }

  // The picture of a pair, and beside it those of others at the same places; the colour of a value is on one scale.
  pictureEntry(card, { example, counterexamples }) {
    const most = Math.max(...card.pairs.map((entry) => Math.abs(entry.example.value))), { look } = this.explorer;
    const figure = ({ value, picture, i, j }, side) => {
      const { pixels, answer } = card.shown[picture], number = element("span", { className: "value", text: written(value) });
      number.style.borderColor = `rgb(${colourOf(value, { most, diverging: true }, { ...look, scale: "linear", gain: 1 })})`;
      const canvas = framedPicture(unpacked(pixels), card.grid, [i, j].map((place) => place - card.first), side);
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `A picture whose answer is ${answer}`);
      return element("figure", {}, canvas, element("figcaption", {}, number, element("span", { text: ` ${answer}` })));
    };
    return element("li", {}, figure(example, PAIR_SIDE), ...counterexamples.map((one) => figure(one, PAIR_SIDE / 3)));
  }

  facts({ effect: [loss, divergence, right], effects_random: random, asymmetry, share, answers = [], ...card }) {
    const range = (which, shown) => `${shown(Math.min(...random.map((one) => one[which])))} to ${shown(Math.max(...random.map((one) => one[which])))}`;
    const { kept } = this.explorer, over = (which) => this.effects?.slice(which, which + 1).map(([mean, interval, draws]) => ["the same over the corpus", `${mean} nats`, draws, `the mean over ${kept.corpus.source}; 95 % interval ${interval}`]) || [];
    const ofPictures = card.pictures ? [
      ["right answers without it", percent(right), range(2, percent), `${percent(card.right)} with it; in its place its mean over the pictures`],
      ...answers.map((one) => [`strongest pair, ${one.name}`, written(one.median), "", `the median of ${one.pictures} pictures; nine in ten lie between ${written(one.low)} and ${written(one.high)}`]),
    ] : [];
    return [
      ...ofPictures,
      ["divergence without it", `${written(divergence)} nats`, range(1, written), `Σ p ln(p / p′), the mean over ${card.pictures ? "pictures" : "places"}`],
      ...over(1),
      ["change of the loss", loss === null ? "–" : `${signed(loss)} nats`, loss === null ? "" : range(0, signed), card.pictures ? "L′ − L, a picture" : "L′ − L, a token"],
      ...over(0),
      ["share of the message", share === null ? "–" : `${(100 * share).toFixed(1)} %`, "", "‖m‖ / (‖m‖ + ‖a − m‖), m of this relation, a all that relational heads write"],
      ["asymmetry", asymmetry === null ? "–" : written(asymmetry), "", "‖R − Rᵀ‖ / ‖R + Rᵀ‖: 0 alike both ways, about 1 unrelated"],
    ];
  }

  get exported() {
    const { card, own } = this;
    if (!card) throw new Error("There is no card to save.");
    const { layer, relation, weights } = card, ends = (values) => [Math.min(...values), Math.max(...values)];
    const rows = [["name", own.name], ["note", own.note], ["weights", weights], card.pictures ? ["pictures", card.pictures] : ["tokens", card.tokens], ["share", card.share], ["asymmetry", card.asymmetry]];
    if (card.pictures) rows.push(["right", card.right]);
    ["loss_change", "divergence", "right_without"].slice(0, card.effect.length).forEach((name, which) => rows.push([name, card.effect[which], ...(card.effect[which] === null ? [] : ends(card.effects_random.map((one) => one[which])))]));
    for (const one of card.labels) {
      rows.push([`AUC ${one.name}`, one.pairs ? one.auc : ""], [`pairs ${one.name}`, one.pairs], [`p ${one.name}`, one.pairs ? one.p : ""]);
      for (const [kind, range] of Object.entries(one.controls || {})) rows.push([`AUC ${one.name}, ${kind}`, "", ...range]);
    }
    for (const one of card.answers || []) rows.push([`strongest pair, ${one.name}`, one.median, one.low, one.high]);
    if (card.pictures) rows.push(...card.pairs.map(({ end, rank, example: { value, picture } }) => [`${end} ${rank} picture ${picture}`, value]));
    else for (const { end, rank, example: { value, receiver, sender } } of card.pairs) rows.push([`${end} ${rank} “${receiver.labels[receiver.at]}” from “${sender.labels[sender.at]}”`, value]);
    const whole = rows.map((row) => [layer, relation, ...row, ...Array(4 - row.length).fill("")]);
    return { title: `card of ${layer} relation ${relation}`, numbers: () => ({ headings: ["layer", "relation", "measure", "value", "control_least", "control_largest"], rows: whole }) };
  }
}

// The card in a text, checked as far as the page reads it.
function checkedCard(text) {
  const is = (ok, what) => {
    if (!ok) throw new Error(`Card: expected a file that this page saved; ${what}.`);
  };
  let card = null;
  try {
    card = JSON.parse(text);
  } catch {
    is(false, "this is no JSON");
  }
  const number = (value) => typeof value === "number", all = (list, right) => Array.isArray(list) && list.every(right);
  const within = (least, most) => (value) => value === null || (number(value) && value >= least && value <= most);
  is(card && card.card === 1, "this is none, or of another version");
  const pictures = card.pictures !== undefined;
  is(["model", "weights", "layer", "formula", ...(pictures ? ["pictures_of"] : ["text", "pairs_of"])].every((name) => typeof card[name] === "string"), "a text in it is missing");
  is(["name", "note"].every((name) => typeof (card[name] ?? "") === "string"), "its name or note is no text");
  is(Number.isSafeInteger(card.relation) && Number.isSafeInteger(pictures ? card.pictures : card.tokens), "its relation is no number");
  is([card.share, card.asymmetry].every(within(0, Infinity)), "a measure is no number");
  const effect = (pair) => all(pair, within(-Infinity, Infinity)) && pair.length === (pictures ? 3 : 2) && pair.slice(1).every(number);
  is(effect(card.effect) && all(card.effects_random, effect) && card.effects_random.length > 0, "its effects are no numbers");
  const range = (ends) => all(ends, number) && ends.length === 2;
  const measured = ({ auc, p, controls }) => number(auc) && (pictures || number(p)) && controls && Object.values(controls).every(range);
  is(all(card.labels, (one) => one && typeof one.name === "string" && number(one.pairs) && (!one.pairs || measured(one))), "its labels are damaged");
  const object = (one) => one && all(one.labels, (label) => typeof label === "string") && Number.isSafeInteger(one.place) && typeof one.labels[one.at] === "string";
  const whole = (...numbers) => numbers.every((one) => Number.isSafeInteger(one) && one >= 0);
  const shown = (one) => one && typeof one.answer === "string" && one.pixels && one.pixels.type === "u1" && typeof one.pixels.data === "string" && all(one.pixels.shape, (side) => whole(side) && side <= 4096) && one.pixels.shape.length === 3;
  const pair = (one) => one && number(one.value) && (pictures ? whole(one.i, one.j) && shown((card.shown || {})[one.picture]) : object(one.receiver) && object(one.sender));
  if (pictures) {
    const answer = (one) => one && typeof one.name === "string" && [one.pictures, one.low, one.median, one.high].every(number);
    is(number(card.right) && whole(card.first) && all(card.grid, (side) => whole(side) && side > 0) && card.grid.length === 2 && all(card.answers, answer), "its pictures are damaged");
  }
  is(all(card.pairs, (one) => one && ["high", "low"].includes(one.end) && number(one.rank) && pair(one.example) && all(one.counterexamples, pair)), "its pairs are damaged");
  return { name: "", note: "", ...card };
}
