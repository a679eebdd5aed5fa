// Colours are those of the figures; a larger value stands out more, on every ground and scale.

import assert from "node:assert/strict";
import test from "node:test";

import { colourOf } from "../../../../dat/explorer/page/colours.js";
import { contrast } from "./contrast.js";
import { CASES } from "./cases.js";
import { drawing } from "./drawn.js";

const THEMES = ["light", "dark"], SCALES = ["linear", "root", "log"];
const { number } = drawing(2);

test("colours of signed values are Python's", () => {
  assert.ok(CASES.colours.length > 100);
  for (const [share, expected] of CASES.colours) {
    const found = colourOf(share, { most: 1, diverging: true }, { theme: "light", gain: 1 });
    found.forEach((part, at) => assert.ok(Math.abs(part - expected[at]) <= 1, `${share}: ${found} for ${expected}`));
  }
});

test("a larger value has no less contrast to the ground", () => {
  for (const theme of THEMES) for (const scale of SCALES) for (const diverging of [true, false]) for (const sign of diverging ? [1, -1] : [1]) {
    const look = { theme, scale, gain: 1 }, colour = (value) => colourOf(sign * value, { most: 2, diverging }, look);
    const ground = colour(0), steps = Array.from({ length: 256 }, (_, step) => contrast(colour((2 * step) / 255), ground));
    for (let step = 1; step < steps.length; step++) assert.ok(steps[step] >= steps[step - 1] - 0.02, `${theme} ${scale} ${sign} ${step}`);
    assert.ok(steps.at(-1) > 7);
  }
});

test("a scale depends on shares of its end, which contrast brings nearer, and ends there", () => {
  for (let round = 0; round < 300; round++) {
    const value = 2 * number() - 1, most = number() + 0.01, gain = 2 ** (6 * number()), times = 10 ** (6 * number() - 3);
    for (const theme of THEMES) for (const scale of SCALES) for (const diverging of [true, false]) {
      const colour = (one, end, with_) => colourOf(one, { most: end, diverging }, { theme, scale, gain: with_ });
      const near = (a, b) => a.forEach((part, at) => assert.ok(Math.abs(part - b[at]) <= 3)); // a step of the table
      near(colour(value, most, gain), colour(value * times, most * times, gain));
      near(colour(value, most, gain), colour(value, most / gain, 1));
      assert.deepEqual(colour(most * (1 + number()), most, 1), colour(most, most, 1));
      assert.deepEqual(colour(value, 0, 1), colour(0, 1, 1));
    }
  }
});
