import assert from "node:assert/strict";
import { test } from "node:test";
import { depthAt, itemsBetween, rowTop } from "../../../static/js/timeline/layout.js";

const ITEMS = [
  { y: 0, height: 10 },
  { y: 15, height: 10 },
  { y: 25, height: 5 },
];

test("items that reach into a stretch of heights are found, in the gap between two none", () => {
  const found = (...heights) => itemsBetween(ITEMS, ...heights).map(({ y }) => y);
  assert.deepEqual(found(9, 16), [0, 15]);
  assert.deepEqual(found(20, 100), [15, 25]);
  assert.deepEqual(found(24.5), [15]);
  assert.deepEqual(found(12), []);
  assert.deepEqual(found(30), []);
});

test("rows stand a pixel apart, those below the first as high as details are", () => {
  const item = { y: 100, height: 64, rowHeight: 30, detailHeight: 16 };
  assert.deepEqual(
    [0, 1, 2].map((depth) => rowTop(item, depth)),
    [100, 131, 148],
  );
  for (const depth of [0, 1, 2]) assert.equal(depthAt(item, rowTop(item, depth)), depth);
  assert.deepEqual(
    [129, 130, 131, 146, 147, 148].map((at) => depthAt(item, at)),
    [0, 0, 1, 1, 1, 2],
  );
});
