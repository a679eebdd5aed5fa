// A pinned map is that of the text that is shown.

import assert from "node:assert/strict";
import test from "node:test";

import { Heads } from "../../../../dat/explorer/page/maps.js";
import { INITIAL } from "../../../../dat/explorer/page/state.js";
import { CASES } from "./cases.js";
import { elements } from "./elements.js";

const { PairPage } = await import("../../../../dat/explorer/page/pairs.js"); // after what stands for a document

test("a pinned map has the values of the text that is shown, and keeps them while it is", () => {
  const shown = { show: () => {} };
  const state = { ...INITIAL, i: 3, j: 1, pinned: "page=relations&relation=1" };
  const page = Object.assign(Object.create(PairPage.prototype), {
    explorer: { state, page: "relations", look: {} }, hovered: { i: null, j: null }, view: shown, pinnedView: shown, links: shown, labels: new Map(),
  });
  const texts = CASES.maps.filter(({ relation, view }) => relation === 1 && view === "raw");
  assert.ok(new Set(texts.map(({ values }) => values[3][1])).size > 2);
  for (const { heads, values } of texts) {
    page.recording = { heads: [new Heads(heads, 0)], sequences: { [heads.receivers]: [], [heads.senders]: [] } };
    page.map = page.mapOf(state);
    page.showMap();
    const [, found] = elements.readout.textContent.match(/beside it (\S+)/);
    assert.ok(Math.abs(Number(found) - values[3][1]) <= 1e-3 * Math.abs(values[3][1]), `${found} for ${values[3][1]}`);
    const { held } = page.pinnedMap;
    page.showMap();
    assert.equal(page.pinnedMap.held, held);
  }
});
