import assert from "node:assert/strict";
import { test } from "node:test";
import { areaPath, drawnKind, lacksPeaks, linePath, plannedMemory, rowsOf } from "../../../static/js/run/fleet.js";

const lane = (kind, node, more = {}) => ({
  kind,
  node,
  device: -1,
  role: "",
  rank: 0,
  utilization: [null],
  memory_bytes: [null],
  memory_share: [null],
  ...more,
});

test("a node has a row with its devices by number and its processes, unknown places stand last", () => {
  const rows = rowsOf([
    lane("process", -1, { role: "reward" }),
    lane("device", 1, { device: 1 }),
    lane("node", 1),
    lane("node", 0),
    lane("process", 0, { role: "policy" }),
  ]);

  assert.deepEqual(
    rows.map(({ node, cpu, devices, processes }) => [node, cpu !== null, devices.map(Boolean), processes.length]),
    [
      [0, true, [false, false], 1],
      [1, true, [false, true], 0],
      [-1, false, [false, false], 1],
    ],
  );
});

test("devices are drawn where they have readings, else nodes", () => {
  const lanes = [lane("node", 0, { utilization: [0.5] }), lane("device", 0, { device: 0, memory_share: [0.1] })];

  assert.equal(drawnKind(lanes, "utilization"), "node");
  assert.equal(drawnKind(lanes, "memory_share"), "device");
  assert.equal(drawnKind([], "utilization"), "");
});

test("gaps part a line and an area, and shares keep to the box", () => {
  const box = { width: 30, height: 10 };

  assert.equal(linePath([0, 2, null, 0.5], box), "M0.0 10.0L10.0 0.0M30.0 5.0");
  assert.equal(areaPath([0, 0], [1, 0.5], { width: 10, height: 10 }), "M0.0 0.0L10.0 5.0L10.0 10.0L0.0 10.0Z");
});

test("of a role the most that was planned and measured over its phases counts", () => {
  const row = (role, planned, measured, more = {}) => ({
    quantity: "bytes",
    phase: "update",
    role,
    term: "",
    predicted: planned === null ? null : { middle: planned },
    measured,
    ...more,
  });

  assert.deepEqual(
    plannedMemory([
      row("policy", 5, 4),
      row("policy", 3, 6),
      row("policy", 99, 99, { term: "weights" }),
      row("vllm", 7, null, { phase: "rollout" }),
      row("reference", 3, null, { phase: "reference" }),
      row("policy", null, 6, { phase: "reference" }),
      row("", 1, 1, { quantity: "seconds" }),
    ]),
    [
      { role: "policy", planned: 5, measured: 6, within: null },
      { role: "vllm", planned: 7, measured: null, within: null },
      { role: "reference", planned: 3, measured: null, within: { role: "policy", measured: 6 } },
    ],
  );
});

test("a plan of roles beside which nothing was measured is told from one that lacks a role alone", () => {
  const row = (not_measured, more = {}) => ({ quantity: "bytes", role: "policy", term: "", not_measured, ...more });

  assert.equal(lacksPeaks([row("no_peaks"), row("state_not_told", { term: "weights" })]), true);
  assert.equal(lacksPeaks([row("no_peaks"), row("")]), false);
  assert.equal(lacksPeaks([row("role_not_told")]), false);
  assert.equal(lacksPeaks([]), false);
});
