// Arrays as Python packed them: little-endian bytes in base64, rows of integers with a scale each.

/** @typedef {{ type: string, shape: number[], data: string }} Packed An array, as Python packs it. */
/** @typedef {(Uint8Array | Int8Array | Int16Array | Int32Array | Float32Array) & { shape: number[] }} Values */
/** @typedef {{ values: Packed, scales: Packed | null }} PackedRows A factor: integers, and a scale of each row. */

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

// A factor (maps, rows, width). A map of it becomes floating point when it is first used; the last few are kept.
export class Rows {
  maps; rows; width;

  /** @param {PackedRows} packed */
  constructor(packed) {
    this.values = unpacked(packed.values);
    this.scales = packed.scales ? unpacked(packed.scales) : null;
    [this.maps, this.rows, this.width] = this.values.shape;
    this.ready = new Map();
  }

  /** @type {(number: number) => Float32Array} */
  map(number) {
    let found = this.ready.get(number);
    if (!found) {
      const size = this.rows * this.width;
      found = new Float32Array(this.values.subarray(number * size, (number + 1) * size));
      if (this.scales) {
        for (let row = 0; row < this.rows; row++) {
          const scale = this.scales[number * this.rows + row];
          for (let place = row * this.width; place < (row + 1) * this.width; place++) found[place] *= scale;
        }
      }
    }
    this.ready.delete(number); // the last used is the last to go
    this.ready.set(number, found);
    if (this.ready.size > 24) this.ready.delete(this.ready.keys().next().value);
    return found;
  }
}
