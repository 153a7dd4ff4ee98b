import assert from "node:assert/strict";
import { test } from "node:test";
import { Branches } from "../../../static/js/charts/branches.js";
import { collect } from "../../../static/js/charts/lines.js";
import { Smoothing } from "../../../static/js/charts/smoothing.js";

// The first attempt did three steps, the second goes on from the third an hour later.
const attempts = [
  { number: 1, visible_through: 3, resume_attempt: null, resume_step: null, step: 3 },
  { number: 2, visible_through: null, resume_attempt: 1, resume_step: 3, step: 6 },
];
const seriesOf = (attempt, x) => ({
  kind: "metric",
  role: "driver",
  rank: 0,
  attempt,
  latest: 1,
  columns: () => ({ x, y: x.map(() => 1), smooth: x.map(() => 1), n: x.length, of: x.length, isWhole: true }),
});
const store = {
  of: () => [seriesOf(1, [1, 2, 3]), seriesOf(2, [4, 5, 6])],
  branches: new Branches(attempts),
  placesOf: (axis) => (axis === "step" ? null : (step) => step * 10 + (axis === "time" && step > 3 ? 3600 : 0)),
};
const breaksOn = (axis) => {
  const view = { axis, smoothing: new Smoothing("", 0.6), zoom: null, isLog: false, showsDead: false };
  const plot = { lines: [{ name: "reward", label: "Reward", color: "--run-0" }], unit: "" };
  return collect({ plot, view, store, hidden: new Set() }).lines[0].column.breaks;
};

test("on the clock no line leads from an attempt to the next, over steps and tokens it does", () => {
  assert.deepEqual(breaksOn("time"), [3]);
  assert.deepEqual(breaksOn("step"), []);
  assert.deepEqual(breaksOn("tokens"), []);
});
