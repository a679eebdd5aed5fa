// Effects over a corpus are Python's table, and of one text no interval is claimed.

import assert from "node:assert/strict";
import test from "node:test";

import { EffectsPage } from "../../../../dat/explorer/page/effects.js";
import { csvOfRows } from "../../../../dat/explorer/page/tables.js";
import { CASES } from "./cases.js";

test("a corpus of one text has no intervals, nor anything that is beyond random directions by these", () => {
  for (const { found, csv } of CASES.corpora) {
    const explorer = { kept: { corpus: found }, state: { measure: "kl" }, server: null }, page = Object.assign(Object.create(EffectsPage.prototype), { explorer });
    const { headings, rows } = page.exported.numbers(), said = page.said(found, page.sorted);
    assert.equal(csvOfRows(headings, rows), csv);
    assert.equal(/1 text, too few for intervals/.test(said), found.texts === 1);
    assert.equal(/with 95 % intervals.*whole interval of/.test(said), found.texts > 1);
    assert.ok(page.sorted.every(({ beyond }) => (beyond === null) === (found.texts === 1)));
  }
});
