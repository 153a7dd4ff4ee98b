import assert from "node:assert/strict";
import { test } from "node:test";
import { around, isWide, opacity, outline, reached, spikes } from "../../../static/js/charts/reach.js";

/** A generator of numbers in [0, 1) that are the same each time. */
function dice(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

/** Return where a pen is led. */
function led(lead, own) {
  const points = [];
  lead(own, { moveTo: (...at) => points.push(at), lineTo: (...at) => points.push(at) });
  return points;
}

/** Columns of noise around 0.2 with one spike, and the smooth line through them. */
function columns(seed, n, spike) {
  const next = dice(seed);
  const low = Array.from({ length: n }, () => 0.2 - 0.05 * next());
  const high = low.map((value) => value + 0.05 * next());
  if (spike !== undefined) high[spike] = 50;
  return { x: low.map((_low, i) => i), low, high, breaks: [], line: low.map(() => 0.2) };
}

test("the pen goes through the least and the most of every column, at any number of columns", () => {
  for (let n = 1; n < 300; n += 13) {
    const own = columns(n, n, n >> 1);
    const drawn = new Set(led(outline, own).map(([x, y]) => `${x}:${y}`));
    for (let i = 0; i < n; i += 1) assert.ok(drawn.has(`${i}:${own.low[i]}`) && drawn.has(`${i}:${own.high[i]}`));
  }
});

test("a column of one point is one point, one without a number none", () => {
  assert.deepEqual(led(outline, { x: [1, 2, 3], low: [5, null, 7], high: [5, null, 9], breaks: [] }), [
    [1, 5],
    [3, 7],
    [3, 9],
  ]);
});

test("where columns hold many points the band between their extremes is drawn", () => {
  assert.ok(isWide(columns(1, 50)));
  assert.ok(!isWide({ low: [1, 2, null], high: [1, 2, null] }));
  assert.deepEqual(led(around, { x: [1, 2, 3], low: [5, null, 7], high: [6, null, 9], breaks: [] }), [
    [1, 6],
    [3, 9],
    [3, 7],
    [1, 5],
  ]);
});

test("a spike of any column stands out, noise does not", () => {
  for (let spike = 0; spike < 120; spike += 7) assert.deepEqual(spikes(columns(3, 120, spike)), [spike]);
  assert.deepEqual(spikes(columns(3, 120)), []);
  assert.deepEqual(spikes({ line: [1, 1, 1], low: [1, 1, 1], high: [1, 50, 1] }), [1]); // around a flat line, too
  assert.deepEqual(spikes({ line: [1, 1, 1, 1, 1], low: [1, 1, 1, -9, null], high: [1, 1, 1, -9, null] }), [3]);
});

test("what a smoothed line still holds of a spike makes none of the columns after it", () => {
  const own = columns(3, 120, 40);
  const line = own.line.map((y, i) => (i >= 40 && i < 60 ? y + 2.5 : y)); // the running mean of 20
  assert.deepEqual(spikes({ ...own, line }), [40]);
});

test("the scale reaches what is drawn, within what is looked at", () => {
  const own = columns(5, 100, 70);
  assert.equal(reached([own], {}, 0.2, 0.2)[1], 50);
  assert.ok(reached([own], { min: 0, max: 69 }, 0.2, 0.2)[1] < 1);
  assert.equal(reached([own], { min: null, max: null }, 0.2, 0.2)[1], 50); // before the chart has a scale
  assert.deepEqual(reached([], {}, 1, 2), [1, 2]);
});

test("many envelopes are faint, none is invisible", () => {
  assert.equal(opacity(1), opacity(4));
  assert.ok(opacity(10) < opacity(4));
  assert.ok(opacity(50) >= 0.07);
});
