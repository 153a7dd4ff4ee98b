import assert from "node:assert/strict";
import { test } from "node:test";
import { columnsFor, parts } from "../../../static/js/compare/asking.js";

test("the first chart is asked for alone, the others in larger parts", () => {
  const names = Array.from({ length: 20 }, (_none, i) => `m${i}`);
  assert.deepEqual(
    parts(names).map((part) => part.length),
    [1, 5, 6, 6, 2],
  );
  assert.deepEqual(parts(names).flat(), names);
  assert.deepEqual(parts([]), []);
});

test("a chart is read in a column a pixel", () => {
  assert.deepEqual([0, 431, 450, 90, 99_999].map(columnsFor), [600, 450, 450, 200, 4000]);
});
