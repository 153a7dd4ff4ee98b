import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, Series } from "../../../static/js/charts/series.js";
import { Smoothing } from "../../../static/js/charts/smoothing.js";

const none = new Smoothing("ema", 0);
const half = new Smoothing("ema", 0.5);

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
  series.set({ x: [1], y: [1], of: 1 }, 0, none);
  for (const smoothing of [half, new Smoothing("gaussian", 0.5), new Smoothing("mean", 0.5)]) {
    series.smoothed(smoothing);
    series.push(series.n + 1, series.n * 3);
    assert.deepEqual(series.smoothed(smoothing), smoothing.of(series.y));
  }
});

test("a zoomed window shows its finer columns, only inside of them", () => {
  const series = new Series({ name: "loss" });
  series.set({ x: [0, 100], y: [0, 1], smooth: [0, 0.5], of: 500 }, 7, half);
  assert.equal(series.isThinned, true);
  series.setDetail({ x: [10, 20], y: [1, 2], smooth: [0.1, 0.2], of: 2 }, 7, { from: 10, to: 20 });
  assert.deepEqual(series.columns(none, { from: 12, to: 18 }).x, [10, 20]);
  assert.deepEqual(series.columns(none, { from: 5, to: 18 }).x, [0, 100]);
  assert.deepEqual(series.columns(half, null).smooth, [0, 0.5]); // of the points that were left out, too
});

test("a smoothed value is the same at every zoom: points left out are never smoothed over", () => {
  const ys = Array.from({ length: 1000 }, (_none, i) => Math.sin(i / 7) + (i % 13));
  for (const smoothing of [new Smoothing("ema", 0.97), new Smoothing("gaussian", 0.9), new Smoothing("mean", 0.95)]) {
    const truth = smoothing.of(ys);
    const served = (places, of) => ({
      x: places,
      y: places.map((i) => ys[i]),
      smooth: places.map((i) => truth[i]),
      of,
    });
    const every = (by, from, to) => Array.from({ length: (to - from) / by }, (_none, k) => from + k * by);
    const series = new Series({ name: "loss" });
    series.set(served([...every(10, 0, 990), 989], 990), 1, smoothing);
    series.setDetail(served([...every(2, 900, 990), 989], 90), 1, { from: 900, to: 1000 });
    for (let i = 990; i < 1000; i += 1) series.push(i, ys[i], i); // frames that follow
    for (const window of [null, { from: 950, to: 1000 }]) {
      const { x, smooth } = series.columns(smoothing, window);
      const known = smooth.flatMap((value, at) => (value === null ? [] : [Math.abs(value - truth[x[at]])]));
      assert.ok(Math.max(...known) < 1e-6);
      assert.equal(known.length, smoothing.kind === "ema" ? x.length : x.length - 10);
    }
    assert.equal(series.isStale, smoothing.kind !== "ema"); // what cannot be told here is read again
    const other = series.columns(new Smoothing("ema", 0.1), null).smooth;
    assert.ok(other.every((value, at) => value === null || Math.abs(value - truth[series.x[at]]) < 1e-6)); // until it is read
  }
});
