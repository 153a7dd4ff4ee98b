import assert from "node:assert/strict";
import { test } from "node:test";
import { Smoothing } from "../../../static/js/charts/smoothing.js";

const near = (found, expected) => {
  assert.equal(found.length, expected.length);
  for (const [i, value] of expected.entries()) assert.ok(Math.abs(found[i] - value) < 1e-12, `${i}: ${found[i]}`);
};

/** By the definition: the mean of all points, weighted by how far away they are. */
function defined(ys, weightOf) {
  return ys.map((_y, i) => {
    const weights = ys.map((_other, k) => weightOf(i - k));
    const sum = ys.reduce((total, y, k) => total + weights[k] * y, 0);
    return sum / weights.reduce((total, weight) => total + weight, 0);
  });
}

test("each way of smoothing is what its definition says", () => {
  const ys = Array.from({ length: 200 }, (_none, i) => Math.sin(i) * i);
  near(
    new Smoothing("ema", 0.75).of(ys),
    defined(ys, (d) => (d >= 0 ? 0.75 ** d : 0)),
  );
  near(
    new Smoothing("mean", 0.8).of(ys),
    defined(ys, (d) => Number(d >= 0 && d < 5)),
  );
  near(
    new Smoothing("gaussian", 0.75).of(ys),
    defined(ys, (d) => (Math.abs(d) <= 26 ? Math.exp(-0.5 * (d / 4) ** 2) : 0)), // 26: below 1e-9
  );
});

test("what is not finite stays and weighs nothing", () => {
  assert.deepEqual(new Smoothing("ema", 0.5).of([1, null, NaN, 3]), [1, null, NaN, 1.75 / 0.75]);
  assert.deepEqual(new Smoothing("mean", 0.5).of([1, NaN, 3, Infinity]), [1, NaN, 2, Infinity]);
});

test("no strength is no smoothing", () => {
  const ys = [3, 1];
  for (const kind of ["ema", "gaussian", "mean"]) assert.equal(new Smoothing(kind, 0).of(ys), ys);
  assert.equal(new Smoothing("mean", 0).text, "");
  assert.equal(new Smoothing("median", 2).text, ""); // from an address
});

test("the slider's place is a weight, or so many points", () => {
  assert.equal(new Smoothing("ema", 0.6).text, "0.6");
  assert.equal(new Smoothing("gaussian", 0.9).text, "gaussian:10");
  assert.deepEqual([new Smoothing("mean", 0.99).text, new Smoothing("mean", 0.99).amount], ["mean:100", "100"]);
});

test("the next smoothed value follows from the newest where it can, however few points there are", () => {
  const ys = [4, -1, 2, 8];
  const ema = new Smoothing("ema", 0.9);
  near([ema.next(ema.of(ys)[2], 8, 4)], [ema.of(ys)[3]]);
  assert.equal(new Smoothing("mean", 0.9).next(1, 8, 4), null);
});
