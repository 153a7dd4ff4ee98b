import assert from "node:assert/strict";
import { test } from "node:test";
import { facts, windowOf } from "../../../static/js/trace/facts.js";

test("the selection counts, or else what of the trace is on the screen", () => {
  const view = { selection: null, view: { from: -5, to: 50 }, extent: { from: 0, to: 40 } };
  assert.deepEqual(windowOf(view), { from: 0, to: 40 });
  assert.deepEqual(windowOf({ ...view, selection: { from: 3, to: 4 } }), { from: 3, to: 4 });
});

test("shares are of the wall time, overlap is of the communication", () => {
  const steps = [
    { number: 1, begin: 0, end: 1e6 },
    { number: 2, begin: 1e6, end: 2e6 },
    { number: 3, begin: 2e6, end: 3e6 },
  ];
  const device = {
    busy: 1e6,
    communication: 4e5,
    overlapped: 1e5,
    kernels: 1200,
    median_kernel: 2000,
    longest_gap: 3e5,
  };
  const rows = facts({ from: 5e5, to: 2e6 }, { steps, devices: [device], nameOf: () => "GPU 0" });
  assert.deepEqual(rows, [
    ["Wall", "1.500 ms", ""],
    ["Steps", "1–2", ""],
    ["Busy, GPU 0", "1.000 ms", "66.7 %"],
    ["  communication", "400.0 µs", "26.7 %"],
    ["  of it overlapped", "100.0 µs", "25.0 %"],
    ["  kernels", "1,200", "median 2.000 µs"],
    ["  longest gap", "300.0 µs", ""],
  ]);
});
