import assert from "node:assert/strict";
import { test } from "node:test";
import { breaksOf, loneValues } from "../../../static/js/charts/gaps.js";
import { outline } from "../../../static/js/charts/reach.js";

const steps = (from, to, by = 1) => Array.from({ length: (to - from) / by + 1 }, (_none, i) => from + i * by);

test("a hole is where points are further apart than is usual", () => {
  assert.deepEqual(breaksOf([...steps(1, 20), ...steps(40, 60)]), [20]);
  assert.deepEqual(breaksOf(steps(0, 500, 50)), []); // held-out numbers are measured now and then
  assert.deepEqual(breaksOf([1, 2, 400]), []); // too few to say what is usual
  assert.deepEqual(breaksOf([...steps(1, 10), ...steps(12, 20)]), []); // one step left out is drawn over
  const columns = [...steps(300, 348), 350].map((column) => (column + 0.5) * 16_587.3137); // rounded
  assert.deepEqual(breaksOf(columns), []);
});

test("of points left out those near each other are no measure of holes", () => {
  const thinned = steps(0, 40).flatMap((bin) => [bin * 100 + 3, bin * 100 + 97]); // the least and the most of each bin
  assert.deepEqual(breaksOf(thinned), []);
  assert.deepEqual(breaksOf([...thinned, 9000, 9094, 9100]), [thinned.length]);
});

test("points that came since count for holes", () => {
  const xs = steps(1, 10);
  assert.deepEqual(breaksOf(xs), []);
  xs.push(30);
  assert.deepEqual(breaksOf(xs), [10]);
});

test("values that no line reaches are known, and another series' points are no holes", () => {
  const nowhere = () => false;
  assert.deepEqual(loneValues([1, null, 2, null, 3, 4], nowhere), [0, 2]);
  assert.deepEqual(loneValues([undefined, 5, undefined, undefined], nowhere), [1]);
  assert.deepEqual(loneValues([1, undefined, 2], nowhere), []);
  assert.deepEqual(
    loneValues([1, 2, 3, 4, 5], (place) => place === 2 || place === 3),
    [2],
  );
});

test("what is around a line is not led over a hole", () => {
  const calls = [];
  const pen = { moveTo: (x) => calls.push(`M${x}`), lineTo: (x) => calls.push(`L${x}`) };
  outline({ x: [1, 2, 9, 10], low: [0, 0, 0, 0], high: [0, 0, 0, 0], breaks: [2] }, pen);
  assert.deepEqual(calls, ["M1", "L2", "M9", "L10"]);
});
