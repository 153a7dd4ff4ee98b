import assert from "node:assert/strict";
import { test } from "node:test";
import { meanOf } from "../../../static/js/compare/mean.js";

test("each line counts where it has begun and not ended, straight between its points", () => {
  const { x, y, counts } = meanOf([
    { x: [0, 10], y: [0, 10] },
    { x: [5, 20], y: [15, 30] },
  ]);
  assert.deepEqual(x, [0, 5, 10, 20]);
  assert.deepEqual(y, [0, 10, 15, 30]); // at 5: (5 + 15) / 2, at 10: (10 + 20) / 2
  assert.deepEqual(counts, [1, 2, 2, 1]);
});

test("at the edge of a zoom a line that goes on outside is not taken for one that has ended", () => {
  const lines = [
    { x: [10, 20], y: [0, 10], reach: [0, 40] },
    { x: [15], y: [25], reach: [5, 35] },
  ];
  assert.deepEqual(meanOf(lines), { x: [15], y: [15], counts: [2] }); // 5 and 25
  assert.deepEqual(meanOf([lines[0], { ...lines[1], reach: [15, 15] }]).counts, [1, 2, 1]); // that is all there is of it
});

test("points that are not finite are left out", () => {
  assert.deepEqual(meanOf([{ x: [1, 2, 3], y: [1, NaN, 3] }]), { x: [1, 3], y: [1, 3], counts: [1, 1] });
  assert.deepEqual(meanOf([]), { x: [], y: [], counts: [] });
});
