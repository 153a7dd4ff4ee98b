import assert from "node:assert/strict";
import { test } from "node:test";
import {
  linesOf,
  logWindow,
  nearestOf,
  phasesOf,
  statesOf,
  stepAt,
  whenWas,
} from "../../../static/js/run/step-facts.js";
import { Lanes } from "../../../static/js/timeline/lanes.js";

const ns = (seconds) => String(BigInt(seconds) * 1_000_000_000n);

/** Steps 1 and 2 of ten seconds each, then 7: rollout of six, update of four. */
function lanesOf() {
  const lanes = new Lanes();
  const steps = [1, 2, 7];
  lanes.add({
    role: "driver",
    rank: 0,
    start: steps.flatMap((step) => [ns(step * 10), ns(step * 10 + 6)]),
    duration: steps.flatMap(() => [ns(6), ns(4)]),
    phase: steps.flatMap(() => ["rollout", "update"]),
    step: steps.flatMap((step) => [step, step]),
  });
  return lanes;
}

test("a step was when its spans were; one of which none were read is estimated between its neighbours", () => {
  const lanes = lanesOf();
  assert.deepEqual(whenWas(lanes, 2), { from: 10, to: 20, isEstimated: false });
  assert.deepEqual(whenWas(lanes, 4), { from: 30, to: 40, isEstimated: true });
  assert.equal(whenWas(lanes, 8), null);
  assert.equal(whenWas(new Lanes(), 1), null);
});

test("a moment lies in the step that had begun", () => {
  const lanes = lanesOf();
  assert.equal(stepAt(lanes, 12), 2);
  assert.equal(stepAt(lanes, 0), 1);
  assert.equal(stepAt(lanes, -1), null);
});

test("phases are the longest first, with their share", () => {
  assert.deepEqual(phasesOf(lanesOf(), 10, 20), [
    { phase: "rollout", seconds: 6, share: 0.6 },
    { phase: "update", seconds: 4, share: 0.4 },
  ]);
});

test("readings of machines are their mean and most over all lanes, without what is not finite", () => {
  const series = [
    { name: "gpu/util", role: "node", rank: 0, y: [10, "NaN", null] },
    { name: "gpu/util", role: "node", rank: 1, y: [30] },
    { name: "cpu/util", role: "node", rank: 0, y: [null] },
  ];
  assert.deepEqual(statesOf(series), [{ name: "gpu/util", mean: 20, most: 30, lanes: 2 }]);
});

const line = (at, text, role = "driver") => ({ at: new Date(at).toISOString(), role, rank: 0, text });

test("the lines of a step end with that of its driver, which comes after its last span", () => {
  const lines = [
    line(900, "step 1/9  reward 0.1"),
    line(1010, "step 2/9  reward 0.2"),
    line(1020, "held-out at step 2  accuracy 0.5"),
    line(1500, "warned of something", "policy"),
    line(2010, "step 3/9  reward 0.3"),
    line(2500, "of the next", "policy"),
    line(3010, "step 4/9  reward 0.4"),
  ];
  const texts = (step, window, some = lines) => linesOf(some, step, window).map(({ text }) => text);

  assert.deepEqual(texts(3, { from: 1000, to: 2000 }), ["warned of something", "step 3/9  reward 0.3"]);
  assert.deepEqual(texts(2, { from: 950, to: 1000 }), ["step 2/9  reward 0.2", "held-out at step 2  accuracy 0.5"]);
  const silent = lines.filter(({ role }) => role !== "driver");
  assert.deepEqual(texts(3, { from: 1000, to: 2000 }, silent), ["warned of something"]);
  assert.deepEqual(texts(5, { from: 4000, to: 5000 }), []);
  const atOnce = [1, 2, 3, 4].map((step) => line(1000, `step:${step} - loss:0.1`)); // quicker than lines are shipped
  assert.deepEqual(texts(3, { from: 1040, to: 1060 }, atOnce), ["step:3 - loss:0.1"]);
});

test("lines of a step are looked for from the end of the step before to a while after its own", () => {
  const lanes = lanesOf();
  assert.deepEqual(logWindow(lanes, 2, { from: 12, to: 20 }, 2), { from: 10, to: 20, until: 22 });
  assert.deepEqual(logWindow(lanes, 1, { from: 0, to: 10 }, 30), { from: 0, to: 10, until: 20 });
});

test("where nothing was read in a step, the readings on both sides of it are", () => {
  const series = [
    { kind: "system", name: "gpu/util", role: "node", rank: 0, x: ["10", "20", "30", "40"], y: [1, 2, 3, 4] },
    { kind: "system", name: "cpu/util", role: "node", rank: 0, x: ["10"], y: [5] },
  ];

  const near = nearestOf(series, { from: 22n, to: 28n });

  assert.deepEqual(
    near.series.map(({ y }) => y),
    [[2, 3], [5]],
  );
  assert.deepEqual(near.times, [10n, 20n, 30n]);
});
