import assert from "node:assert/strict";
import { test } from "node:test";
import { among, said } from "../../../static/js/compare/reading.js";

const line = (...y) => ({ column: { x: [1, 2, 4], y } });

test("the head of a chart has the baseline's value among those of all runs", () => {
  const base = line(0.5, 0.6, null);
  const others = [line(0.4, 0.4, 0.9), line(0.9, 0.8, 0.7)];
  assert.equal(among([base, ...others], base, 3, ""), "0.600 (0.400 – 0.800)");
  assert.equal(among([base], base, 1, ""), "0.500");
  assert.equal(among([...others], undefined, 4, ""), "0.700 – 0.900");
  assert.equal(among([base, ...others], base, 9, ""), ""); // nothing is there
});

test("a column that holds many points says from where to where they reach", () => {
  assert.equal(said({ x: [1], y: [2], low: [1], high: [4] }, 1, ""), "2.00 (1.00 – 4.00)");
  assert.equal(said({ x: [1], y: [2] }, 0, ""), "—");
});

test("the mean of a group says of how many runs it is where some have ended", () => {
  const mean = { x: [1, 2], y: [2, 4], counts: [3, 1], most: 3 };
  assert.equal(said(mean, 1, ""), "2.00");
  assert.equal(said(mean, 2, ""), "4.00, of 1 of 3 runs");
});
