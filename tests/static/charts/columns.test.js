import assert from "node:assert/strict";
import { test } from "node:test";
import { readLines } from "../../../static/js/charts/columns.js";

/** Return an answer of the console: the head, and arrays that begin at multiples of eight bytes. */
function answer(head, ...arrays) {
  const text = new TextEncoder().encode(JSON.stringify(head));
  const start = new Uint8Array(4 + text.length);
  new DataView(start.buffer).setUint32(0, text.length, true);
  start.set(text, 4);
  const pieces = [start, ...arrays.map((array) => new Uint8Array(array.buffer))];
  const padded = pieces.map((piece) => Math.ceil(piece.length / 8) * 8);
  const whole = new Uint8Array(padded.reduce((sum, size) => sum + size, 0));
  let at = 0;
  for (const [i, piece] of pieces.entries()) {
    whole.set(piece, at);
    at += padded[i];
  }
  return whole.buffer;
}

const about = { run: "r-1", name: "loss", role: "driver", rank: 0, odd: [], first: null, is_single: false };

test("typed columns are read as they were sent, each series with what it has", () => {
  const series = [
    { ...about, n: 3, of: 600, has_smooth: true, is_wide: false, odd: [[4, "Infinity"]] },
    { ...about, run: "r-2", n: 2, of: 2, first: 5, is_single: true, has_smooth: false, is_wide: true },
  ];
  const { lines, unplaced } = readLines(
    answer(
      { x: "step", low: 100, width: 200, series, unplaced: ["r-3"] },
      Int32Array.of(0, 1, 4),
      Float32Array.of(1, 2, NaN),
      Float32Array.of(0, 1, NaN),
      Float32Array.of(3, 50, NaN),
      Float32Array.of(1.5, 1.75, 1.75),
      Float64Array.of(1e9 + 0.25, 7),
    ),
  );
  const [one, other] = lines;
  assert.deepEqual(unplaced, ["r-3"]);
  assert.deepEqual(one.columns(), {
    x: [199.5, 399.5, 999.5], // the middle of 100 to 299
    y: [1, 2, null],
    smooth: [1.5, 1.75, 1.75],
    low: [0, 1, null],
    high: [3, 50, null],
    odd: [[999.5, Infinity]],
    n: 3,
    of: 600,
    isWhole: false,
  });
  assert.deepEqual(other.columns().y, [1e9 + 0.25, 7]);
  assert.equal(other.low, other.y);
  assert.equal(other.columns().smooth, other.y);
  assert.deepEqual([one.run, other.run, other.latest], ["r-1", "r-2", 7]);
});

test("a column of one step stands at that step, one of seconds in its middle", () => {
  const head = { ...about, n: 2, of: 2, first: 3, is_single: true, has_smooth: false, is_wide: false };
  const at = (low, width) => readLines(answer({ low, width, series: [head] }, Float32Array.of(1, 2))).lines[0].x;
  assert.deepEqual(at(10, 1), [13, 14]);
  assert.deepEqual(at(0, 0.5), [1.75, 2.25]);
});
