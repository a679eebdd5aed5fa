// What Python computed for these tests, in a file that it names.

import { readFileSync } from "node:fs";

export const CASES = JSON.parse(readFileSync(process.env.CASES, "utf8"));
