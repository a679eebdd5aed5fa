// A table is the same file wherever it is written.

import assert from "node:assert/strict";
import test from "node:test";

import { csvOfRows } from "../../../../dat/explorer/page/tables.js";
import { CASES } from "./cases.js";

test("a table as CSV is Python's text", () => {
  const { headings, rows, csv } = CASES.table;
  assert.ok(rows.length > 500);
  assert.equal(csvOfRows(headings, rows), csv);
});
