import assert from "node:assert/strict";
import { test } from "node:test";
import { axisText, emptyBetween, momentText, span } from "../../../static/js/trace/times.js";

test("a length has about three digits", () => {
  const cases = [
    [412, "412 ns"],
    [8_100, "8.100 µs"],
    [41_200_000, "41.20 ms"],
    [1.204e9, "1.204 s"],
    [725e9, "12 min 5 s"],
    [12_000e9, "3 h 20 min"],
    [735_004e9, "8 d 12 h"],
    [-2e6, "−2.000 ms"],
    [NaN, "—"],
  ];
  for (const [ns, text] of cases) assert.equal(span(ns), text);
});

test("a moment is as fine as its ticks", () => {
  assert.equal(axisText(14.18e9, 1e7), "14.18 s");
  assert.equal(axisText(2e6, 1e5), "2.0 ms");
  assert.equal(axisText(1500, 100), "1.5 µs");
  assert.equal(axisText(0, 1), "0");
});

test("a moment on the screen is a thousand times as fine as the screen", () => {
  assert.equal(momentText(1_234_567, 1e6), "1.235 ms");
  assert.equal(momentText(1_234_567, 100), "1.234567 ms");
});

test("files that were recorded at other times are apart, and ranks of one recording are not", () => {
  const day = 86_400e9;
  assert.equal(
    emptyBetween([
      [day, day + 1e9],
      [0, 1e9],
    ]),
    day - 1e9,
  );
  assert.equal(
    emptyBetween([
      [0, 2e9],
      [1e9, 3e9],
      [5e9, 6e9],
    ]),
    0,
    "a gap below a minute",
  );
  assert.equal(
    emptyBetween([
      [0, 100e9],
      [200e9, 300e9],
    ]),
    0,
    "a gap as long as what was recorded",
  );
  assert.equal(emptyBetween([]), 0);
});
