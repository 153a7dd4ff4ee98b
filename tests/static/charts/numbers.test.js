import assert from "node:assert/strict";
import { test } from "node:test";
import * as numbers from "../../../static/js/charts/numbers.js";

test("numbers have about three digits", () => {
  const cases = [
    [0.938, "0.938"],
    [15.62, "15.6"],
    [1024, "1,024"],
    [0.0003, "3.0e−4"],
    [0.05, "0.0500"],
    [12, "12"],
    [-2, "−2.00"],
    [2e7, "2.00e+7"],
    [null, "—"],
    [Infinity, "∞"],
  ];
  for (const [value, text] of cases) assert.equal(numbers.number(value), text);
});

test("a stretch of time is in the unit that fits", () => {
  const cases = [
    [0, "0 s"],
    [240e-6, "240 µs"],
    [0.0054, "5.4 ms"],
    [0.054, "54 ms"],
    [1.5, "1.50 s"],
    [15.6, "15.6 s"],
    [1320, "22 min"],
    [16_800, "4 h 40 min"],
    [NaN, "—"],
  ];
  for (const [value, text] of cases) assert.equal(numbers.duration(value), text);
  assert.equal(numbers.seconds(227), "227 s");
});

test("a metric has its unit", () => {
  assert.equal(numbers.metric(0.125, "share"), "12.5 %");
  assert.equal(numbers.metric(0.00315, "%"), "0.003 %");
  assert.equal(numbers.metric(-0.00456, "share"), "−0.46 %");
  assert.equal(numbers.metric(0, "%"), "0 %");
  assert.equal(numbers.metric(2 ** 30, "bytes"), "1.0 GiB");
  assert.equal(numbers.metric(38_900, "tok/s"), "38.9k tok/s");
  assert.equal(numbers.metric(NaN, "s"), "NaN");
  assert.equal(numbers.unitOf("gpu_memory_bytes"), "bytes");
  assert.equal(numbers.unitOf("reward"), "");
});

test("ticks are short", () => {
  assert.equal(numbers.tick(0.5, "share"), "50%");
  assert.equal(numbers.tick(0.002, "s"), "2 ms");
  assert.equal(numbers.tick(2 ** 29, "bytes"), "512 MiB");
  assert.equal(numbers.tick(20_000, ""), "20k");
  assert.equal(numbers.tick(0.1 + 0.2, ""), "0.3");
  assert.equal(numbers.tick(null, ""), "");
  assert.deepEqual(numbers.ticks([9.5e-7, 1e-6, 1.05e-6], ""), ["9.5e−7", "1e−6", "1.05e−6"]);
  assert.deepEqual(numbers.ticks([10_000, 10_010, null], ""), ["10000", "10010", ""]);
});

test("places on an axis of time are not rounded", () => {
  assert.deepEqual([90, 150, 500, 3600, 5750].map(numbers.exactly), [
    "90 s",
    "2 min 30 s",
    "8 min 20 s",
    "1 h",
    "1 h 35 min 50 s",
  ]);
});
