// An address holds the whole state of a view, and no address gives a state that no view has.

import assert from "node:assert/strict";
import test from "node:test";

import VIEW from "../../../../dat/explorer/page/view.json" with { type: "json" };
import { fragmentOf, INITIAL, packedText, stateOf, unpackedText } from "../../../../dat/explorer/page/state.js";
import { CASES } from "./cases.js";
import { drawing } from "./drawn.js";

const LETTERS = [..."ab09 &=#+%_.;/?", "é", "م", "語", "𝔘", "\ufeff", "\n", "\u0000"];
const { below, number, one, text } = drawing(1);

function drawnState() {
  const drawn = (name, first) => {
    if (below(3) === 0) return first;
    if (VIEW.counts.includes(name)) return one([0, 1, below(1000), Number.MAX_SAFE_INTEGER]);
    if (!(name in VIEW.ranges)) return text(LETTERS, 12);
    const [least, most] = VIEW.ranges[name];
    return one([least, most, +(least + (most - least) * number()).toPrecision(6)]);
  };
  return Object.fromEntries(Object.entries(INITIAL).map(([name, first]) => [name, drawn(name, first)]));
}

test("a state is that of its own address", () => {
  for (let round = 0; round < 500; round++) {
    const state = drawnState();
    assert.deepEqual(stateOf(fragmentOf(state)), state);
  }
});

test("what is as it was at first is not in the address", () => {
  assert.equal(fragmentOf(INITIAL), "#");
  assert.deepEqual(stateOf(""), INITIAL);
  for (const name of Object.keys(INITIAL)) {
    const state = drawnState(), named = new URLSearchParams(fragmentOf(state).slice(1)).has(name);
    assert.equal(named, state[name] !== INITIAL[name]);
  }
});

test("any address gives a state with the names and ranges of views", () => {
  const names = [...Object.keys(INITIAL), "constructor", "__proto__", "toString", "none", ""];
  const values = ["", "x", "-1", "1.5", "1e99", "NaN", "Infinity", "1e400", "0x10", " 7", "9007199254740993", "%00"];
  for (let round = 0; round < 2000; round++) {
    const parts = Array.from({ length: below(6) }, () => `${one(names)}=${one(values)}`);
    const state = stateOf(`${one(["", "#"])}${parts.join("&")}`);
    assert.deepEqual(Object.keys(state), Object.keys(INITIAL));
    for (const name of VIEW.counts) assert.ok(state[name] === INITIAL[name] || (Number.isSafeInteger(state[name]) && state[name] >= 0));
    for (const [name, [least, most]] of Object.entries(VIEW.ranges)) {
      assert.ok(state[name] === INITIAL[name] || (state[name] >= least && state[name] <= most));
    }
  }
});

test("a text is unpacked as it was packed, here or by Python", async () => {
  for (let round = 0; round < 50; round++) {
    const drawn = text(LETTERS, 400), packed = await packedText(drawn);
    assert.match(packed, /^[\w-]*$/);
    assert.equal(await unpackedText(packed), drawn);
  }
  for (const [whole, packed] of CASES.texts) assert.equal(await unpackedText(packed), whole);
});

test("a damaged or too long text is refused", async () => {
  const packed = await packedText("the cat sat on the mat"), long = await packedText("a".repeat(2 ** 20 + 1));
  for (const damaged of [packed.slice(0, -3), `A${packed}`, "!", long]) await assert.rejects(unpackedText(damaged), /damaged/);
  assert.equal((await unpackedText(await packedText("a".repeat(2 ** 20)))).length, 2 ** 20);
});
