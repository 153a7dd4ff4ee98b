import assert from "node:assert/strict";
import { test } from "node:test";
import { align, finite, spread, stack } from "../../../static/js/charts/align.js";

test("series share the union of their x, with undefined where one has no point", () => {
  const [xs, a, b] = align([
    { x: [1, 10], y: [5, 6] },
    { x: [2, 10], y: [7, 8] },
  ]);
  assert.deepEqual([...xs], [1, 2, 10]); // by number, not by text
  assert.deepEqual(a, [5, undefined, 6]);
  assert.deepEqual(b, [undefined, 7, 8]);
});

test("series with the same x are not copied", () => {
  const columns = [
    { x: [1, 2], y: [3, 4] },
    { x: [1, 2], y: [5, 6] },
  ];
  const [xs, a] = align(columns);
  assert.equal(xs, columns[0].x);
  assert.equal(a, columns[0].y);
  assert.deepEqual(spread([1, 2, 3], [3], [9]), [undefined, undefined, 9]);
});

test("stacked columns add up, what is missing counts as nothing", () => {
  assert.deepEqual(
    stack([
      [1, 2],
      [3, null],
      [NaN, 5],
    ]),
    [
      [1, 2],
      [4, 2],
      [4, 7],
    ],
  );
});

test("what a line cannot show is set apart with its place", () => {
  assert.deepEqual(finite([1, NaN, null, Infinity]), [
    [1, null, null, null],
    [
      [1, NaN],
      [3, Infinity],
    ],
  ]);
});
