// Arrays as Python packed them: little-endian bytes in base64, rows of integers with a scale each.

/** @typedef {{ type: string, shape: number[], data: string }} Packed An array, as Python packs it. */
/** @typedef {(Uint8Array | Int8Array | Int16Array | Int32Array | Float32Array) & { shape: number[] }} Values */
/** @typedef {{ values?: Packed, scales?: Packed | null, shape?: number[] }} PackedRows A factor: integers, and a scale of each row; or its shape. */

const TYPES = { u1: Uint8Array, i1: Int8Array, i2: Int16Array, i4: Int32Array, f4: Float32Array };

/** @type {(packed: Packed) => Values} */
export function unpacked(packed) {
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) bytes[place] = text.charCodeAt(place);
  const values = new TYPES[packed.type](bytes.buffer);
  values.shape = packed.shape;
  return values;
}

const MOST_READY = 12e6; // bytes of maps in floating point that are kept, of all factors
/** @type {Map<string, Float32Array>} */
const ready = new Map();
let made = 0, kept = 0;

function drop(name) {
  kept -= ready.get(name)?.byteLength || 0;
  ready.delete(name);
}

// A factor (maps, rows, width). A map of it becomes floating point when it is first used; the last used are kept. Of a large
// recording there is only the shape, and maps are given one by one.
export class Rows {
  maps; rows; width;

  /** @param {PackedRows} packed */
  constructor(packed) {
    this.values = packed.values ? unpacked(packed.values) : null;
    this.scales = packed.scales ? unpacked(packed.scales) : null;
    [this.maps, this.rows, this.width] = packed.shape || this.values.shape;
    this.name = made++;
  }

  /** @type {(number: number) => Float32Array | null} */
  map(number) {
    const found = ready.get(`${this.name}:${number}`) || (this.values && this.floats(this.values, this.scales, number));
    if (found) this.keep(number, found);
    return found || null;
  }

  /** @type {(number: number, packed: PackedRows) => Float32Array} */
  give(number, packed) {
    return this.keep(number, this.floats(unpacked(packed.values), packed.scales ? unpacked(packed.scales) : null, 0));
  }

  floats(values, scales, place) {
    const size = this.rows * this.width, found = new Float32Array(values.subarray(place * size, (place + 1) * size));
    if (scales) for (let at = 0; at < size; at++) found[at] *= scales[place * this.rows + Math.floor(at / this.width)];
    return found;
  }

  keep(number, found) {
    const name = `${this.name}:${number}`;
    drop(name); // the last used is the last to go
    ready.set(name, found);
    kept += found.byteLength;
    while (kept > MOST_READY && ready.size > 1) drop(ready.keys().next().value);
    return found;
  }
}
