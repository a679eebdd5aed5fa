// Ink is read on every colour, and tokens without letters are read as those around them.

import assert from "node:assert/strict";
import test from "node:test";

import { directions, inkOn } from "../../../../dat/explorer/page/links.js";
import { contrast } from "./contrast.js";
import { drawing } from "./drawn.js";

test("ink has a contrast of 4.5 or more to every ground", () => {
  const parts = [...Array.from({ length: 52 }, (_, step) => 5 * step), 8, 9, 10, 11, 12, 254];
  for (const red of parts) for (const green of parts) for (const blue of parts) {
    const ground = [red, green, blue], ink = inkOn(ground);
    assert.ok(["#000000", "#ffffff"].includes(ink));
    assert.ok(contrast(ground, ink === "#000000" ? [0, 0, 0] : [255, 255, 255]) >= 4.5, `${ink} on ${ground}`);
  }
});

const WORDS = ["cat", "שלום", "مرحبا", "12", ",", " ", "…"], ENDS = ["↵", ".↵"];
const { below, one } = drawing(3);
const hasLetters = (label) => /\p{L}/u.test(label);

// The direction of the nearest token with letters before a place (by -1) or after it (by 1) in its line; null if there is none.
function nearest(labels, place, by) {
  for (let at = place; at >= 0 && at < labels.length; at += by) {
    if (hasLetters(labels[at])) return /[\u0590-\u06ff]/.test(labels[at]);
    if (labels[by > 0 ? at : at - 1]?.endsWith("↵")) return null;
  }
  return null;
}

test("tokens with letters decide for those between them that have none, and the text where they differ", () => {
  for (let round = 0; round < 3000; round++) {
    const labels = Array.from({ length: below(9) }, () => one(below(6) ? WORDS : ENDS));
    for (const whole of [false, true]) {
      const found = directions(labels, whole);
      labels.forEach((label, place) => {
        const before = nearest(labels, place, -1), after = nearest(labels, place, 1);
        assert.equal(found[place], before !== null && before === after ? before : whole, `${JSON.stringify(labels)} ${place} ${whole}`);
      });
    }
  }
});
