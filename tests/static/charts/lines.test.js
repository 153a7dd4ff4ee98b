import assert from "node:assert/strict";
import { test } from "node:test";
import { Branches } from "../../../static/js/charts/branches.js";
import { endsOf } from "../../../static/js/charts/gaps.js";
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

test("a mean is drawn apart where it is of some of its runs, and no line leads from one number of them to another", () => {
  const y = [1, 2, 8, 9, 5];
  const columns = () => ({
    x: [1, 2, 3, 4, 5],
    y,
    smooth: y,
    counts: [3, 3, 2, 2, 1],
    most: 3,
    n: 5,
    of: 5,
    isWhole: false,
  });
  const mean = { ...seriesOf(1, []), columns };
  const view = { axis: "step", smoothing: new Smoothing("", 0), zoom: null, isLog: false, showsDead: false };
  const plot = { lines: [{ name: "reward", label: "Reward", color: "--run-0" }], unit: "" };
  const { data, drawn } = collect({ plot, view, store: { of: () => [mean] }, hidden: new Set() });
  assert.deepEqual(
    drawn.map(({ look }) => look),
    ["some", "line"],
  );
  assert.deepEqual(data.slice(1), [
    [null, null, 8, 9, 5],
    [1, 2, null, null, null],
  ]);
  assert.deepEqual(endsOf(drawn[0].column), [2, 4]);
});
