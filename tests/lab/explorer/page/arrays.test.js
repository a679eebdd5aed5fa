// Arrays are read as Python packed them, whatever has been read before.

import assert from "node:assert/strict";
import test from "node:test";

import { Rows, unpacked } from "../../../../dat/explorer/page/arrays.js";
import { CASES } from "./cases.js";

test("arrays of every type have Python's values and shape", () => {
  assert.deepEqual(CASES.arrays.map(({ packed }) => packed.type).sort(), ["f4", "i1", "i2", "i4", "u1"]);
  for (const { packed, values, shape } of CASES.arrays) {
    const found = unpacked(packed);
    assert.deepEqual([...found], values);
    assert.deepEqual(found.shape, shape);
  }
});

test("a map of rows is Python's, however many maps were read in between", () => {
  const { packed, values } = CASES.rows, rows = new Rows(packed), order = [...values.keys()];
  assert.ok(order.length > 24); // more than are kept
  for (const number of [...order, ...order.toReversed(), 0, 0]) {
    const found = rows.map(number);
    values[number].forEach((value, place) => assert.ok(Math.abs(found[place] - value) <= 1e-6 * Math.abs(value)));
    assert.equal(found.length, values[number].length);
  }
});
