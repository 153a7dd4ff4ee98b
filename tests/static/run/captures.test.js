import assert from "node:assert/strict";
import { test } from "node:test";
import { costOf } from "../../../static/js/run/capture-cost.js";
import { hasBegun, stepsTitle, whoText, workersText } from "../../../static/js/run/captures.js";

test("a capture is named by its steps, or by what it waits for", () => {
  assert.equal(stepsTitle({ steps: [308, 309] }), "Steps 308–309");
  assert.equal(stepsTitle({ steps: [100, 100] }), "Step 100");
  assert.equal(stepsTitle({ steps: null, num_steps: 1 }), "Next step");
  assert.equal(stepsTitle({ steps: null, num_steps: 2 }), "Next 2 steps");
  assert.equal(stepsTitle({ steps: null, seconds: 60 }), "Up to 60 s");
});

test("workers are named by role, with ranges of ranks", () => {
  const worker = (role, rank) => ({ role, rank });
  assert.equal(
    workersText([worker("policy", 3), worker("policy", 0), worker("policy", 1), worker("vllm", 0)]),
    "policy 0–1, 3, vLLM 0",
  );
  assert.equal(whoText({ roles: [], ranks: [] }), "all workers");
  assert.equal(whoText({ roles: ["vllm"], ranks: [] }), "vLLM");
  assert.equal(whoText({ roles: [], ranks: [1] }), "all roles, rank 1");
  assert.equal(whoText({ roles: ["policy"], ranks: [0, 1, 2] }), "policy, ranks 0–2");
});

test("a capture has begun once steps were recorded", () => {
  assert.equal(hasBegun({ state: "armed", state_times: {} }), false);
  assert.equal(hasBegun({ state: "recording", state_times: {} }), true);
  assert.equal(hasBegun({ state: "failed", state_times: { armed: "2026-01-01" } }), false);
  assert.equal(hasBegun({ state: "failed", state_times: { recording: "2026-01-01" } }), true);
});

const MIB = 2 ** 20;
const known = {
  costs: [{ tool: "torch", step_bytes: MIB, second_bytes: null, stall_seconds: 1.26, slowdown: 1.5, captures: 1 }],
  freeBytes: 10 * MIB,
  clusterFreeBytes: null,
  tool: "torch",
  workers: 2,
  seconds: 0,
};

test("a capture's cost is that of all its workers and steps", () => {
  assert.deepEqual(costOf({ ...known, steps: 3 }), {
    text:
      "Files of about 6.0 MiB, the run pauses for about 1.3 s, recorded steps take 1.50 times as long " +
      "(by 1 capture before). Free: 10.0 MiB on the console's disk.",
    isTooLarge: false,
  });
});

test("the smaller disk decides whether there is space", () => {
  assert.equal(costOf({ ...known, steps: 6 }).isTooLarge, true);
  assert.equal(costOf({ ...known, steps: 3, clusterFreeBytes: 5 * MIB }).isTooLarge, true);
});

test("what was never recorded has no known cost", () => {
  const unknown = "How large its files get is not known yet. Free: 10.0 MiB on the console's disk.";
  assert.deepEqual(costOf({ ...known, tool: "nsys", steps: 3 }), { text: unknown, isTooLarge: false });
  assert.deepEqual(costOf({ ...known, steps: 3, seconds: 60 }), { text: unknown, isTooLarge: false });
});
