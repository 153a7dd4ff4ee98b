import assert from "node:assert/strict";
import { test } from "node:test";
import { axisText, Clock, niceStep, span } from "../../../static/js/trace/clock.js";

test("Unix ns survive as offsets and back, though a double cannot hold them", () => {
  const clock = new Clock("1760000000000000001");
  assert.equal(clock.offset("1760000000000000043"), 42);
  assert.equal(clock.absolute(42), "1760000000000000043");
  assert.equal(clock.date(2e6).getTime(), 1760000000002);
});

test("a length has about three digits", () => {
  const cases = [
    [412, "412 ns"],
    [8_100, "8.100 µs"],
    [41_200_000, "41.20 ms"],
    [1.204e9, "1.204 s"],
    [725e9, "12 min 5 s"],
    [-2e6, "−2.000 ms"],
    [NaN, "—"],
  ];
  for (const [ns, text] of cases) assert.equal(span(ns), text);
});

test("ticks are at 1, 2, 5 × 10ⁿ, above half a minute at whole minutes", () => {
  const cases = [
    [0, 1],
    [3, 5],
    [5, 5],
    [6_000, 10_000],
    [31e9, 60e9],
    [61e9, 120e9],
    [100_000e9, 172_800e9],
  ];
  for (const [least, step] of cases) assert.equal(niceStep(least), step);
});

test("a moment is as fine as its ticks", () => {
  assert.equal(axisText(14.18e9, 1e7), "14.18 s");
  assert.equal(axisText(2e6, 1e5), "2.0 ms");
  assert.equal(axisText(1500, 100), "1.5 µs");
  assert.equal(axisText(0, 1), "0");
});
