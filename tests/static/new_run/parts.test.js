// The list of further rewards as text and back.

import assert from "node:assert/strict";
import { test } from "node:test";
import { partsOf, textOf, weightOf } from "../../../static/js/new_run/parts.js";

test("parts survive their text", () => {
  const parts = [
    { kind: "format", weight: 0.2 },
    { kind: "custom", weight: 1, source: "def reward(p, c, a):\n    return 1" },
  ];
  assert.deepEqual(partsOf(textOf(parts)), parts);
  assert.equal(textOf([]), "");
});

test("what is no list holds no parts", () => {
  for (const text of ["", "  ", "{", '{"kind": "math"}', "3"]) assert.deepEqual(partsOf(text), []);
});

test("a weight is a number where it can be one, and else what was typed", () => {
  assert.equal(weightOf(" 0.5 "), 0.5);
  assert.equal(weightOf("1,000"), 1000);
  assert.equal(weightOf("heavy"), "heavy");
  assert.equal(weightOf("0,5"), "0,5"); // for the server to refuse: it is not 5
  assert.equal(weightOf(""), "");
});
