// Two models side by side: what the page takes for the same map, and how far two of them differ.

import assert from "node:assert/strict";
import test from "node:test";

import { DifferenceMap, Heads, onlyIn, PairMap, sameMap } from "../../../../dat/explorer/page/maps.js";
import { CASES } from "./cases.js";

globalThis.requestAnimationFrame = (then) => Number(setImmediate(then));

const maps = CASES.maps.map(({ heads, relation, head, view }) => new PairMap(new Heads(heads, 0), relation, head, view));
const valuesOf = (map) => Array.from({ length: map.n }, (_, i) => [...map.row(i)]).flat();

test("a map less another is the difference of their values, and less itself zero", async () => {
  for (const [place, first] of maps.entries()) {
    const second = maps.slice(place).concat(maps).find((one) => one !== first && one.relation === first.relation && one.view === first.view && one.heads.kind === first.heads.kind) || first;
    const found = new DifferenceMap(second, first), own = new DifferenceMap(first, first), [a, b] = [first, second].map(valuesOf);
    assert.deepEqual(valuesOf(found).map(Math.fround), a.map((value, at) => Math.fround(b[at] - value)));
    await new Promise((done) => found.measure(() => done(undefined), false));
    assert.equal(found.largest, Math.max(...valuesOf(found).map((value) => Math.abs(value) || 0)));
    assert.ok(found.diverging && valuesOf(own).every((value, at) => (own.visible(Math.floor(at / own.m), at % own.m) ? value === 0 : Number.isNaN(value))));
  }
});

test("the same map is that of the same name, and what has none is said", () => {
  const heads = maps.map((map) => map.heads), dual = ["sensory", "relational"].map((kind) => heads.findLast((one) => one.kind === kind));
  for (const map of maps) {
    const found = sameMap(map, [map.heads]);
    assert.deepEqual([found.key, found.heads], [map.key, map.heads]);
    assert.equal(sameMap(map, heads.filter((one) => one.title !== map.heads.title)), null);
  }
  assert.deepEqual(onlyIn(dual, dual), []);
  assert.deepEqual(onlyIn([], dual), []);
  assert.deepEqual(onlyIn(dual, dual.slice(0, 1)), ["blocks.1 · relational heads 0 to 1", "blocks.1 · relational relations 0 to 2"]);
});
