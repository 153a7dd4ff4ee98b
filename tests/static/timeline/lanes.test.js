import assert from "node:assert/strict";
import { test } from "node:test";
import { Branches } from "../../../static/js/charts/branches.js";
import { Lanes } from "../../../static/js/timeline/lanes.js";

const SECOND = 1_000_000_000n;
const at = (seconds) => String(1_700_000_000n * SECOND + (BigInt(seconds * 10) * SECOND) / 10n);

/** One lane of spans [start, duration, phase, step], in seconds after 1.7e9. */
const column = (role, rank, spans, attempt = 1) => ({
  role,
  rank,
  attempt,
  start: spans.map(([start]) => at(start)),
  duration: spans.map(([, duration]) => String(BigInt(duration * 10) * (SECOND / 10n))),
  phase: spans.map(([, , phase]) => phase),
  step: spans.map(([, , , step]) => step),
});

function lanes() {
  const made = new Lanes();
  made.add(
    column("vllm", 0, [
      [0, 2, "rollout", 1],
      [4, 2, "rollout", 2],
    ]),
  );
  made.add(
    column("policy", 0, [
      [2, 1, "update", 1],
      [6, 3, "update", 2],
    ]),
  );
  return made;
}

test("spans are in seconds after the first one, lanes in the order of their roles", () => {
  const made = lanes();
  assert.equal(made.clock.absolute(4), at(4));
  assert.deepEqual([made.start, made.end, made.numSpans], [0, 9, 4]);
  assert.deepEqual(
    made.sorted.map(({ role }) => role),
    ["policy", "vllm"],
  );
});

test("a step goes from its first to its last span on any lane", () => {
  const made = lanes();
  assert.deepEqual(
    [...made.steps],
    [
      [1, [0, 3]],
      [2, [4, 9]],
    ],
  );
  assert.deepEqual(made.latestSteps(1), [4, 9, 1]);
  assert.deepEqual(made.latestSteps(5), [0, 9, 2]);
  assert.equal(new Lanes().latestSteps(3), null);
});

test("a span that comes late is put where it belongs", () => {
  const made = lanes();
  made.add(column("policy", 0, [[3, 0.5, "save", 1]]));
  assert.deepEqual(made.lane("policy", 0).rows[0].start, [2, 3, 6]);
  assert.deepEqual(made.lane("policy", 0).rows[0].phase, ["update", "save", "update"]);
});

test("totals count what lies inside", () => {
  const made = lanes();
  // rollout: 1 of [0, 2] and 2 of [4, 6]; update: all of [2, 3] and 1 of [6, 9]
  assert.deepEqual(Object.fromEntries(made.totals(1, 7)), { rollout: 3, update: 2 });
  assert.deepEqual(Object.fromEntries(made.totals(1, 7, [made.lane("policy", 0)])), { update: 2 });
});

test("a step without spans lies between its neighbours on the clock", () => {
  const clock = lanes().clockOfSteps();
  // step 1 ended at 3, step 2 at 9
  assert.deepEqual([1, 1.5, 2, 7].map(clock), [1_700_000_003, 1_700_000_006, 1_700_000_009, 1_700_000_009]);
  assert.equal(new Lanes().clockOfSteps()(1), null);
});

test("what was resumed past is a dead branch", () => {
  const made = lanes();
  const attempt = { resume_attempt: null, resume_step: null };
  made.setBranches(
    new Branches([
      { ...attempt, number: 1, visible_through: 1, step: 2 },
      { number: 2, visible_through: null, resume_attempt: 1, resume_step: 1, step: 2 },
    ]),
  );
  made.add(column("policy", 0, [[20, 1, "update", 2]], 2));
  assert.deepEqual(made.lane("policy", 0).rows[0].isDead, [false, true, false]);
  assert.deepEqual(made.steps.get(2), [20, 21]);
  assert.deepEqual(made.deadSteps.get(1).get(2), [4, 9]);
  assert.deepEqual(made.latestSteps(5), [20, 21, 1]); // hours may lie before it
});
