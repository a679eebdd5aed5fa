// Maps of pairs, computed block by block from factors. i counts receivers, j senders.

import { Rows, unpacked } from "./arrays.js";
import { work } from "./work.js";

// The error function, to 2e-7: Abramowitz & Stegun, 7.1.26.
/** @type {(x: number) => number} */
const erf = (x) => {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return Math.sign(x) * (1 - tail);
};

const ACTIVATIONS = {
  identity: (x) => x,
  relu: (x) => Math.max(x, 0),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  tanh: Math.tanh,
  gelu: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  gelu_erf: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  silu: (x) => x / (1 + Math.exp(-x)),
};
const MAY_BE_NEGATIVE = ["identity", "tanh", "gelu", "gelu_erf", "silu"];

// Activated inner products: heads' attention weights, or relations.
/** @typedef {{ q: Float32Array, k: Float32Array, t: Float32Array | null }} Part What a map is computed from. */

class Factors {
  /** @type {Map<number, Promise<Part>>} */
  coming = new Map();
  /** @type {number[]} */
  asked = [];

  // ask: for maps by number, of a recording of which there is an outline only
  constructor(packed, ask = null) {
    this.ask = ask;
    this.queries = new Rows(packed.queries);
    this.keys = new Rows(packed.keys);
    this.offsets = packed.offsets ? new Rows(packed.offsets) : null;
    this.normalisers = packed.normalisers ? unpacked(packed.normalisers) : null;
    this.activation = packed.activation;
    this.bits = packed.bits;
    this.maps = this.queries.maps;
  }

  // Whether maps are here, or can be had.
  get here() {
    return Boolean(this.queries.values || this.ask);
  }

  // What a map is computed from, unless it has to be asked for.
  /** @type {(number: number) => Part | null} */
  part(number) {
    const keys = this.queries.values ? Math.floor((number * this.keys.maps) / this.maps) : number;
    const q = this.queries.map(number), k = this.keys.map(keys), t = this.offsets && this.offsets.map(number);
    return q && k && (t || !this.offsets) ? { q, k, t } : null;
  }

  // The same once it is here; all maps of a moment are asked for together.
  /** @type {(number: number) => Promise<Part>} */
  async load(number) {
    const found = this.part(number);
    if (found) return found;
    if (!this.coming.has(number)) {
      this.asked.push(number);
      this.answer ||= Promise.resolve().then(() => this.takeAsked());
      this.coming.set(number, this.answer.then((parts) => parts.get(number)));
    }
    return this.coming.get(number);
  }

  async takeAsked() {
    const numbers = this.asked;
    this.asked = [];
    this.answer = null;
    try {
      const maps = await this.ask(numbers);
      return new Map(numbers.map((number, place) => {
        const { queries, keys, offsets } = maps[place];
        return [number, { q: this.queries.give(number, queries), k: this.keys.give(number, keys), t: this.offsets && this.offsets.give(number, offsets) }];
      }));
    } finally {
      for (const number of numbers) this.coming.delete(number);
    }
  }

  // Values of receivers r0 to r1 and senders c0 to c1, row by row; pairs outside [first, last) are skipped.
  fill(number, visible, r0, r1, c0, c1, out, part = this.part(number)) {
    const width = this.queries.width, columns = c1 - c0, { q, k, t } = part;
    const span = t ? this.offsets.width : 0, reach = (span - 1) / 2;
    const softmax = this.activation === "softmax", act = ACTIVATIONS[this.activation];
    const identity = this.activation === "identity";
    for (let i = r0; i < r1; i++) {
      const from = Math.max(c0, visible.first[i]), to = Math.min(c1, visible.last[i]);
      const z = softmax ? this.normalisers[number * this.queries.rows + i] : 0;
      const base = i * width;
      for (let j = from; j < to; j++) {
        let sum = 0;
        for (let a = base, b = j * width, end = base + width; a < end; a++, b++) sum += q[a] * k[b];
        if (t) sum += t[i * span + Math.max(-reach, Math.min(reach, j - i)) + reach];
        out[(i - r0) * columns + j - c0] = softmax ? Math.exp(sum - z) : identity ? sum : act(sum);
      }
    }
  }
}

// Weights of the symbols of a library: a map of tokens and symbols for each part.
function assignmentOf(packed, ask) {
  const usage = unpacked(packed.usage), weights = new Factors(packed, ask), { rows } = weights.queries;
  return { usage, weights, visible: { first: new Int32Array(rows), last: new Int32Array(rows).fill(usage.shape[1]) } };
}

// A layer as addresses name it: by number where a model has one stack.
export const shortOf = (layer) => layer.replace(/^blocks\.(?=\d+$)/, "");
export const isNamed = (layer, name) => name === layer || name === shortOf(layer);

/** @typedef {{ i: number | null, j: number | null }} Pair Receiver and sender. */
/** @typedef {{ receivers: string[], senders: string[] }} Labels */

// Heads of one kind in one layer.
export class Heads {
  /** @type {(packed: any, place: number, ask?: ((name: string, numbers: number[]) => Promise<any[]>) | null) => void} */
  constructor(packed, place, ask = null) {
    const asks = (name) => ask && ((numbers) => ask(name, numbers));
    this.place = place;
    this.layer = packed.layer;
    this.kind = packed.kind;
    this.receivers = packed.receivers;
    this.senders = packed.senders;
    this.visible = { first: unpacked(packed.first), last: unpacked(packed.last) };
    this.weights = packed.weights ? new Factors(packed.weights, asks("weights")) : null; // null where nothing is attended
    this.relations = packed.relations ? new Factors(packed.relations, asks("relations")) : null;
    this.relationOfHead = packed.relation_of_head;
    const arrays = (found) => Object.fromEntries(Object.entries(found).map(([name, x]) => [name, unpacked(x)]));
    this.ranges = arrays(packed.ranges);
    this.messages = arrays(packed.messages);
    this.relationProducts = packed.relation_products ? unpacked(packed.relation_products) : null;
    this.found = new Map(); // largest values of maps that Python did not measure
    this.senderNorms = packed.sender_norms ? unpacked(packed.sender_norms) : null;
    this.assignment = packed.assignment ? assignmentOf(packed.assignment, asks("assignment")) : null;
    this.mediators = packed.mediators;
    this.error = packed.error;
  }

  get title() {
    return `${this.layer} · ${this.kind}`;
  }

  // Whether its maps are here, or can be had: a file of a large recording holds those of some layers.
  get here() {
    return (this.weights || this.relations).here;
  }

  get short() {
    return shortOf(this.layer);
  }

  get count() {
    return this.weights ? this.weights.maps : 0;
  }

  views(relation) {
    if (!this.weights) return ["raw"];
    if (relation === null) return this.senderNorms ? ["attention", "contribution"] : ["attention"];
    return this.relationProducts ? ["raw", "attended", "contribution"] : ["raw", "attended"];
  }
}

// The heads that an address names by layer and kind, or else the first.
/** @type {(candidates: Heads[], named: { layer: string, kind: string }) => Heads} */
export function headsOf(candidates, { layer, kind }) {
  const within = layer ? candidates.filter((heads) => isNamed(heads.layer, layer)) : candidates;
  return within.find((heads) => heads.kind === kind) || within[0] || candidates[0];
}

export const VIEW_NAMES = { raw: "raw", attended: "under attention", contribution: "contribution", attention: "attention" };

const scratch = []; // attention weights of a block, by head

// One map of one layer: a head's attention, or a relation, seen raw, under a head's attention, or as it contributes.
export class PairMap {
  /**
   * @param {Heads} heads
   * @param {number | null} relation
   * @param {number} head
   * @param {string} view
   */
  constructor(heads, relation, head, view) {
    this.heads = heads;
    this.relation = relation;
    this.head = relation !== null && heads.relationOfHead ? relation : Math.max(0, Math.min(head, heads.count - 1));
    this.view = heads.views(relation).includes(view) ? view : heads.views(relation)[0];
    this.n = heads.visible.first.length;
    this.m = (heads.weights || heads.relations).keys.rows;
    this.through = heads.relationOfHead || relation === null || this.view === "attended"; // one head
    const activations = [relation === null || this.view !== "raw" ? heads.weights.activation : "relu"];
    if (relation !== null) activations.push(heads.relations.activation);
    this.diverging = (relation === null || this.view !== "contribution") && activations.some((name) => MAY_BE_NEGATIVE.includes(name));
    this.key = [heads.place, relation, this.through ? this.head : "", this.view].join(":");
    this.end = null; // of its scale, if that is not its own
    /** @type {Part[] | null} */
    this.held = null;
  }

  // Heads through which it is seen.
  get used() {
    const raw = this.relation !== null && this.view === "raw";
    return raw ? [] : this.relation === null || this.view === "attended" ? [this.head] : [...Array(this.heads.count).keys()];
  }

  // Factors and numbers of the maps that it is computed from: the relation, and attention of heads.
  get needs() {
    const { relations, weights } = this.heads, own = this.relation === null ? [] : [{ factors: relations, number: this.relation }];
    return [...own, ...this.used.map((number) => ({ factors: weights, number }))];
  }

  // Whether it can be computed; what that takes is held until it is let go.
  get ready() {
    if (!this.held) {
      const parts = this.needs.map(({ factors, number }) => factors.part(number));
      if (parts.every(Boolean)) this.held = parts;
    }
    return this.held !== null;
  }

  // Do something as soon as it can be computed.
  /** @type {(then: () => void) => void} */
  whenReady(then) {
    if (this.ready) return then();
    Promise.all(this.needs.map(({ factors, number }) => factors.load(number))).then((parts) => {
      this.held = parts;
      then();
    }, () => {}); // whoever asked has complained
    return undefined;
  }

  // What it is computed from, from another that is the same map of the same text.
  /** @type {(other: PairMap | null | undefined) => void} */
  holdAs(other) {
    if (other && other.key === this.key && other.heads === this.heads) this.held = other.held;
  }

  letGo() {
    this.held = null;
  }

  // The largest value of the map; null until it has been measured.
  get largest() {
    const { relation, view, head, heads: { ranges, found } } = this;
    if (relation === null) return view === "attention" ? ranges.weights[head] : ranges.senders[head];
    return view === "raw" ? ranges.relations[relation] : found.get(this.key)?.most ?? null;
  }

  // Where the scale of colours ends.
  get most() {
    return this.end ?? this.largest;
  }

  // Measure the largest value in slices, unless that has been done, or begun with the same urgency.
  /** @type {(then: () => void, urgent: boolean) => void} */
  measure(then, urgent) {
    const { found } = this.heads, begun = found.get(this.key);
    if (this.largest !== null || (begun && begun.urgent >= urgent)) return;
    found.set(this.key, { urgent, most: null });
    let most = 0;
    const keep = (value) => {
      most = Math.max(most, Math.abs(value) || 0);
    };
    this.visit(keep, urgent, () => {
      found.set(this.key, { urgent, most });
      if (!urgent) this.letGo();
      then();
    });
  }

  // Call each(value, i, j) for every visible pair, in slices of work, and then something else.
  /** @type {(each: (value: number, i: number, j: number) => void, urgent: boolean, then: () => void) => void} */
  visit(each, urgent, then) {
    const rows = Math.max(1, Math.floor(2e4 / this.m)), block = new Float32Array(rows * this.m), { first, last } = this.heads.visible;
    let row = 0;
    const some = () => {
      const end = Math.min(this.n, row + rows), columns = Math.max(...last.subarray(row, end));
      this.fill(row, end, 0, columns, block);
      for (let i = row; i < end; i++) for (let j = first[i]; j < last[i]; j++) each(block[(i - row) * columns + j], i, j);
      row = end;
      if (row < this.n) return work.add(some, urgent);
      then();
    };
    this.whenReady(() => work.add(some, urgent));
  }

  // The pair to begin with: the strongest, of all or of a receiver. A token with itself and the first sender, on which
  // much attention falls, count half; a receiver that sees one sender only has no choice, and counts nothing.
  /** @type {(receiver: number | null, then: (pair: Pair) => void) => void} */
  strongest(receiver, then) {
    const { first, last } = this.heads.visible, same = this.heads.receivers === this.heads.senders;
    let pair = null, most = -1;
    const keep = (value, i, j) => {
      if (receiver !== null && i !== receiver) return;
      const strength = last[i] - first[i] === 1 ? 0 : Math.abs(value) / (j === 0 || (same && i === j) ? 2 : 1);
      if (strength > most) [pair, most] = [{ i, j }, strength];
    };
    this.visit(keep, true, () => pair && then(pair));
  }

  get name() {
    return this.relation === null ? `head ${this.head}` : `relation ${this.relation}`;
  }

  get title() {
    const how = { raw: "", attention: "", attended: ` under attention of head ${this.head}`, contribution: "" };
    how.contribution = this.relation === null ? ", contribution of each sender" : ", contribution through all heads";
    return `${this.heads.layer} · ${this.relation === null ? `${this.heads.kind} ` : ""}${this.name}${how[this.view]}`;
  }

  visible(i, j) {
    return j >= this.heads.visible.first[i] && j < this.heads.visible.last[i];
  }

  // Values of a block, row by row; hidden pairs are not numbers.
  fill(r0, r1, c0, c1, out) {
    const size = (r1 - r0) * (c1 - c0), { heads } = this, held = this.ready ? this.held : null;
    out.fill(NaN, 0, size);
    if (this.relation === null || this.view === "raw") {
      const factors = this.relation === null ? heads.weights : heads.relations;
      factors.fill(this.relation === null ? this.head : this.relation, heads.visible, r0, r1, c0, c1, out, held[0]);
      if (this.view !== "contribution") return;
      const norms = heads.senderNorms, start = this.head * this.m;
      for (let place = 0; place < size; place++) out[place] *= norms[start + c0 + (place % (c1 - c0))];
      return;
    }
    heads.relations.fill(this.relation, heads.visible, r0, r1, c0, c1, out, held[0]);
    const alphas = this.used.map((head, number) => {
      if (!(scratch[number]?.length >= size)) scratch[number] = new Float32Array(size);
      heads.weights.fill(head, heads.visible, r0, r1, c0, c1, scratch[number], held[number + 1]);
      return scratch[number];
    });
    if (this.view === "attended") {
      for (let place = 0; place < size; place++) out[place] *= alphas[0][place];
      return;
    }
    // |r| |sum_h alpha^h v_h|, from the inner products of v_h, what a relation of 1 contributes through head h
    const { count } = heads, products = heads.relationProducts.subarray(this.relation * count * count, (this.relation + 1) * count * count);
    for (let place = 0; place < size; place++) {
      if (out[place] !== out[place]) continue;
      let sum = 0;
      for (let h = 0; h < count; h++) for (let g = 0; g < count; g++) sum += alphas[h][place] * alphas[g][place] * products[h * count + g];
      out[place] = Math.abs(out[place]) * Math.sqrt(Math.max(0, sum));
    }
  }

  value(i, j) {
    const found = new Float32Array(1);
    this.fill(i, i + 1, j, j + 1, found);
    return found[0];
  }

  row(i) {
    const found = new Float32Array(this.m);
    this.fill(i, i + 1, 0, this.m, found);
    return found;
  }
}

// A map of the second model less the same map of the first; of pairs that both see.
export class DifferenceMap extends PairMap {
  /** @type {(map: PairMap, first: PairMap) => void} */
  constructor(map, first) {
    super(first.heads, map.relation, map.head, map.view);
    this.first = first;
    this.second = map;
    this.diverging = true;
    this.key += ":difference";
  }

  get needs() {
    return [...this.first.needs, ...this.second.needs];
  }

  get ready() {
    return this.first.ready && this.second.ready;
  }

  whenReady(then) {
    this.first.whenReady(() => this.second.whenReady(then));
  }

  letGo() {
    this.first.letGo();
    this.second.letGo();
  }

  get largest() {
    return this.heads.found.get(this.key)?.most ?? null;
  }

  get title() {
    return `B − A, ${super.title}`;
  }

  // Most that the rounding of factors adds to a value; null where it is not known.
  get rounding() {
    const both = [this.first, this.second];
    return this.view === "contribution" || both.some(({ largest }) => largest === null) ? null : both.reduce((sum, { heads, largest }) => sum + (heads.error * largest) / 255, 0);
  }

  visible(i, j) {
    return this.first.visible(i, j) && this.second.visible(i, j);
  }

  fill(r0, r1, c0, c1, out) {
    const less = new Float32Array((r1 - r0) * (c1 - c0));
    this.first.fill(r0, r1, c0, c1, less);
    this.second.fill(r0, r1, c0, c1, out);
    for (let place = 0; place < less.length; place++) out[place] -= less[place];
  }
}

// The same map of another recording of the text, if that has it.
/** @type {(map: PairMap, heads: Heads[]) => PairMap | null} */
export function sameMap({ heads: { title }, relation, head, view }, heads) {
  const own = heads.find((one) => one.title === title), factors = own && (relation === null ? own.weights : own.relations);
  if (!factors || !factors.here || (relation ?? head) >= factors.maps) return null;
  const found = new PairMap(own, relation, head, view);
  return found.view === view && found.head === head ? found : null;
}

// What one model has and the other does not, in words.
/** @type {(heads: Heads[], others: Heads[]) => string[]} */
export function onlyIn(heads, others) {
  return heads.flatMap((one) => {
    const other = others.find(({ title }) => title === one.title);
    return ["weights", "relations"].flatMap((name) => {
      const count = one[name]?.maps || 0, have = other?.[name]?.maps || 0, left = count - have;
      return left > 0 ? `${one.title} ${{ weights: "head", relations: "relation" }[name]}${left > 1 ? `s ${have} to` : ""} ${count - 1}` : [];
    });
  });
}

// The strongest value of each field of a grid of rows × columns over a block of a map; hidden fields are not numbers.
/** @type {(map: PairMap, r0: number, r1: number, c0: number, c1: number, rows: number, columns: number) => Float32Array} */
export function pooled(map, r0, r1, c0, c1, rows, columns) {
  const found = new Float32Array(rows * columns).fill(NaN);
  const width = c1 - c0, line = new Float32Array(width);
  for (let i = r0; i < r1; i++) {
    map.fill(i, i + 1, c0, c1, line);
    const start = Math.floor(((i - r0) * rows) / (r1 - r0)) * columns;
    for (let j = 0; j < width; j++) {
      const value = line[j];
      if (value !== value) continue;
      const place = start + Math.floor((j * columns) / width);
      if (!(Math.abs(found[place]) >= Math.abs(value))) found[place] = value;
    }
  }
  return found;
}
