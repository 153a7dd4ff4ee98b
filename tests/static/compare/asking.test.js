import assert from "node:assert/strict";
import { test } from "node:test";
import { columnsFor, parts, smoothingText } from "../../../static/js/compare/asking.js";

test("the first chart is asked for alone, the others in larger parts", () => {
  const names = Array.from({ length: 20 }, (_none, i) => `m${i}`);
  assert.deepEqual(
    parts(names).map((part) => part.length),
    [1, 5, 6, 6, 2],
  );
  assert.deepEqual(parts(names).flat(), names);
  assert.deepEqual(parts([]), []);
});

test("the slider's place is a weight, or so many points", () => {
  assert.equal(smoothingText("ema", 0.6), "0.6");
  assert.equal(smoothingText("gaussian", 0.9), "gaussian:10");
  assert.equal(smoothingText("mean", 0.99), "mean:100");
  for (const smoother of ["ema", "gaussian", "mean"]) assert.equal(smoothingText(smoother, 0), "");
});

test("a chart is read in a column a pixel", () => {
  assert.deepEqual([0, 431, 450, 90, 99_999].map(columnsFor), [600, 450, 450, 200, 4000]);
});
