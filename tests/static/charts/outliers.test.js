import assert from "node:assert/strict";
import { test } from "node:test";
import { clippedBy, withoutOutliers } from "../../../static/js/charts/outliers.js";

const wave = Array.from({ length: 100 }, (_none, i) => Math.sin(i));
const shownOf = (y, more = {}) => ({
  lines: [{ id: "a", column: { x: y.map((_y, i) => i), y, n: y.length, of: y.length, ...more } }],
});

test("values far from all others do not say how far the axis reaches", () => {
  const [low, high] = withoutOutliers([...wave, 500, -90], false);
  assert.deepEqual([low, high], [Math.min(...wave), Math.max(...wave)]);
  assert.deepEqual(withoutOutliers(wave, false), [low, high]); // without any nothing is left out
  assert.deepEqual(withoutOutliers([2, 2, 2, 7], false), [2, 7]); // a constant says nothing of how far others are
  assert.equal(withoutOutliers([], false), null);
});

test("on a log axis far is far on it", () => {
  const decades = Array.from({ length: 50 }, (_none, i) => 10 ** (i / 10)); // 1 … 1e4.9
  assert.deepEqual(withoutOutliers([...decades, 1e20, 0, -3], true), [1, 10 ** 4.9]);
});

test("what is left out is counted, in sight, and of lines that are shown", () => {
  const shown = shownOf([1, 50, 2, NaN, 60, -9, 70]);
  const scales = { x: { min: 0, max: 5 }, y: { min: 0, max: 10 } };
  assert.deepEqual(clippedBy(shown, scales, new Set()), { above: [1, 4], below: [5], isAtLeast: false });
  assert.deepEqual(clippedBy(shown, scales, new Set(["a"])).above, []);
  const columns = shownOf([1, 2], { low: [-5, 1], high: [3, 99], of: 800 }); // each stands for many points
  assert.deepEqual(clippedBy(columns, scales, new Set()), { above: [1], below: [0], isAtLeast: true });
});
