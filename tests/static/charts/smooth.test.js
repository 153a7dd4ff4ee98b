import assert from "node:assert/strict";
import { test } from "node:test";
import { smooth } from "../../../static/js/charts/smooth.js";

test("the start is not pulled to zero", () => {
  // weight 3/4: sums 0.25, 0.1875 + 1 = 1.1875; masses 0.25, 0.4375
  assert.deepEqual(smooth([1, 4], 0.75), [1, 1.1875 / 0.4375]);
  assert.deepEqual(smooth([2, 2, 2], 0.5), [2, 2, 2]);
});

test("what is not finite stays and weighs nothing", () => {
  // weight 1/2: sums 0.5, 0.25 + 1.5 = 1.75; masses 0.5, 0.75
  assert.deepEqual(smooth([1, null, NaN, 3], 0.5), [1, null, NaN, 1.75 / 0.75]);
});

test("no weight of the past is no smoothing", () => {
  const ys = [3, 1];
  assert.equal(smooth(ys, 0), ys);
});
