import assert from "node:assert/strict";
import { test } from "node:test";
import { phasesOf, statesOf, stepAt, whenWas } from "../../../static/js/run/step-facts.js";
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
