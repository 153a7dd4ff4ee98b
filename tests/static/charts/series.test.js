import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, Series } from "../../../static/js/charts/series.js";
import { smooth } from "../../../static/js/charts/smooth.js";

test("smoothing is not pulled to zero at its start", () => {
  assert.deepEqual(smooth([4, 4, 4], 0.5), [4, 4, 4]);
  const [first, second] = smooth([1, 3], 0.5); // (0.5·0.5·1 + 0.5·3) / 0.75
  assert.equal(first, 1);
  assert.ok(Math.abs(second - 7 / 3) < 1e-12);
  assert.deepEqual(smooth([1, null, NaN], 0.9), [1, null, NaN]);
});

test("numbers travel as words where JSON has none", () => {
  assert.deepEqual(["NaN", "-Infinity", null, 2].map(decode), [NaN, -Infinity, null, 2]);
});

test("a late point is put where it belongs", () => {
  const series = new Series({ name: "loss" });
  for (const [x, y] of [
    [1, 10],
    [3, 30],
    [2, 20],
  ])
    series.push(x, y);
  assert.deepEqual(
    [series.x, series.y],
    [
      [1, 2, 3],
      [10, 20, 30],
    ],
  );
  assert.equal(series.latest, 30);
});

test("a point that comes goes on with the smoothed line", () => {
  const series = new Series({ name: "loss" });
  series.set({ x: [1], y: [1], of: 1 }, 0, 0);
  assert.deepEqual(series.smoothed(0.5), [1]);
  series.push(2, 3);
  assert.deepEqual(series.smoothed(0.5), smooth([1, 3], 0.5));
});

test("a zoomed window shows its finer columns, only inside of them", () => {
  const series = new Series({ name: "loss" });
  series.set({ x: [0, 100], y: [0, 1], smooth: [0, 0.5], of: 500 }, 7, 0.9);
  assert.equal(series.isThinned, true);
  series.detail = { from: 10, to: 20, x: [10, 20], y: [1, 2], of: 2, through: 7 };
  assert.deepEqual(series.columns(0, { min: 12, max: 18 }).x, [10, 20]);
  assert.deepEqual(series.columns(0, { min: 5, max: 18 }).x, [0, 100]);
  assert.deepEqual(series.columns(0.9, null).smooth, [0, 0.5]); // of the points that were left out, too
});
