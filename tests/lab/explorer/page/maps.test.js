// Maps that the page computes from factors are those that Python computes, in whatever blocks.

import assert from "node:assert/strict";
import test from "node:test";

import { Heads, PairMap, pooled } from "../../../../dat/explorer/page/maps.js";
import { CASES } from "./cases.js";
import { drawing } from "./drawn.js";

globalThis.requestAnimationFrame = (then) => Number(setImmediate(then));

const { below } = drawing(4);
const maps = CASES.maps.map(({ heads, relation, head, view, values }) => ({ map: new PairMap(new Heads(heads, 0), relation, head, view), view, values }));
const pairsOf = (map) => Array.from({ length: map.n }, (_, i) => Array.from({ length: map.m }, (_column, j) => ({ i, j })).filter((pair) => map.visible(pair.i, pair.j))).flat();
const close = (one, other, most) => assert.ok(Math.abs(one - other) <= 1e-4 * most, `${one} for ${other}, of up to ${most}`);

test("every way to see a relation or a head is tried", () => {
  assert.deepEqual([...new Set(maps.map(({ map }) => map.view))].sort(), ["attended", "attention", "contribution", "raw"]);
});

test("values are Python's, and hidden pairs are not numbers", () => {
  for (const { map, view, values } of maps) {
    assert.equal(map.view, view);
    const most = Math.max(...values.flat().map(Math.abs));
    assert.equal(map.n, values.length);
    for (let i = 0; i < map.n; i++) map.row(i).forEach((value, j) => (map.visible(i, j) ? close(value, values[i][j], most) : assert.ok(Number.isNaN(value))));
  }
});

test("a block of a map is a part of the whole", () => {
  for (const { map } of maps) {
    const [r0, c0] = [below(map.n), below(map.m)], [r1, c1] = [r0 + 1 + below(map.n - r0), c0 + 1 + below(map.m - c0)];
    const block = new Float32Array((r1 - r0) * (c1 - c0));
    map.fill(r0, r1, c0, c1, block);
    for (let i = r0; i < r1; i++) assert.deepEqual(block.subarray((i - r0) * (c1 - c0), (i - r0 + 1) * (c1 - c0)), map.row(i).subarray(c0, c1));
    assert.deepEqual(map.value(r0, c0), block[0]);
  }
});

test("a field of a smaller grid is the strongest of its pairs", () => {
  for (const { map } of maps) {
    const rows = 1 + below(map.n), columns = 1 + below(map.m), found = pooled(map, 0, map.n, 0, map.m, rows, columns);
    const expected = new Float32Array(rows * columns).fill(NaN);
    for (const { i, j } of pairsOf(map)) {
      const field = Math.floor((i * rows) / map.n) * columns + Math.floor((j * columns) / map.m), value = map.value(i, j);
      if (!(Math.abs(expected[field]) >= Math.abs(value))) expected[field] = value;
    }
    assert.deepEqual(found, expected);
  }
});

test("the scale ends at the largest value", async () => {
  for (const { map, values } of maps) {
    if (map.largest === null) await new Promise((done) => map.measure(() => done(undefined), false));
    const most = Math.max(...values.flat().map(Math.abs));
    close(map.largest, most, most);
    assert.ok(map.diverging || values.flat().every((value) => value >= 0));
  }
});

test("a map is visited in slices, in which every visible pair comes once", async () => {
  const map = new PairMap(new Heads(CASES.long, 0), null, 1, "attention"), seen = [];
  let slices = 0;
  await new Promise((done) => {
    const fill = map.fill.bind(map);
    map.fill = (...block) => (slices++, fill(...block));
    map.visit((value, i, j) => seen.push([i, j, value]), true, () => done(undefined));
  });
  assert.ok(slices > 1);
  assert.deepEqual(seen, pairsOf(map).map(({ i, j }) => [i, j, map.value(i, j)]));
});

test("a page begins with the strongest pair, of which few are told apart by being first or the same", async () => {
  for (const { map } of maps) {
    for (const receiver of [null, map.n - 1]) {
      const { i, j } = await new Promise((done) => map.strongest(receiver, done));
      assert.ok(map.visible(i, j) && (receiver === null || i === receiver));
      const strength = Math.abs(map.value(i, j));
      for (const pair of pairsOf(map)) {
        const { first, last } = map.heads.visible, alone = last[pair.i] - first[pair.i] === 1;
        const plain = pair.j > 0 && !(pair.i === pair.j && map.heads.receivers === map.heads.senders);
        if (plain && !alone && (receiver === null || pair.i === receiver)) assert.ok(strength >= Math.abs(map.value(pair.i, pair.j)));
      }
    }
  }
});

test("maps of an outline are Python's once they have come, and are asked for together", async () => {
  for (const { outline, answers, relation, head, view, values } of CASES.maps) {
    const asked = [], ask = async (name, numbers) => (asked.push(name), numbers.map((number) => answers[name][number]));
    const heads = new Heads(outline, 0, ask), map = new PairMap(heads, relation, head, view), most = Math.max(...values.flat().map(Math.abs));
    assert.ok(heads.here && !map.ready && !new Heads(outline, 0).here);
    await new Promise((done) => map.whenReady(() => done(undefined)));
    assert.equal(asked.length, new Set(asked).size);
    for (const { i, j } of pairsOf(map)) close(map.value(i, j), values[i][j], most);
  }
});
