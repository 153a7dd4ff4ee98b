import assert from "node:assert/strict";
import { test } from "node:test";
import { Clock } from "../../../static/js/timeline/clock.js";
import { layerGroups, phaseGroup } from "../../../static/js/trace/lanes.js";

const clock = new Clock("1700000000000000000");
const at = (ns) => String(1700000000000000000n + BigInt(ns));

test("phases are lanes by role and rank, with the steps that they make up", () => {
  const column = (role, rank, start, duration, step) => ({
    role,
    rank,
    start: start.map(at),
    duration: duration.map(String),
    depth: start.map(() => 0),
    phase: start.map((_none, i) => i),
    name: start.map(() => ""),
    step,
  });
  const { group, steps } = phaseGroup(
    {
      phases: ["rollout", "update"],
      lanes: [column("vllm", 0, [0], [50], [1]), column("policy", 0, [60, 200], [40, 10], [1, 2])],
    },
    clock,
  );
  assert.deepEqual(
    group.lanes.map(({ key, title }) => [key, title]),
    [
      ["phase-policy-0", "policy 0"],
      ["phase-vllm-0", "vLLM 0"],
    ],
  );
  const [row] = group.lanes[0].rows;
  assert.deepEqual([...row.start], [60, 200]);
  assert.deepEqual([...row.end], [100, 210]);
  assert.equal(row.text(1), "update");
  assert.equal(row.category(1), 2);
  assert.deepEqual(row.about[1], { phase: "update", step: 2, name: "" });
  assert.deepEqual(steps, [
    { number: 1, begin: 0, end: 100 },
    { number: 2, begin: 200, end: 210 },
  ]);
});

test("there is no group without a phase", () => {
  assert.deepEqual(phaseGroup({ phases: [], lanes: [] }, clock), { group: null, steps: [] });
});

test("a file's lanes are grouped by process: streams of a device before threads, none without events", () => {
  const lane = (id, more) => ({
    id,
    process: "python",
    pid: 7,
    device: -1,
    stream: -1,
    depths: 1,
    events: 5,
    title: "",
    thread: "",
    tid: 0,
    ...more,
  });
  const layer = {
    id: 3,
    role: "policy",
    rank: 1,
    kind: "torch",
    file_name: "a.json",
    made: 1,
    origin: at(0),
    lanes: [
      lane(0, { kind: "thread", thread: "main" }),
      lane(1, { kind: "stream", device: 0, stream: 7, events: 20 }),
      lane(2, { kind: "thread", events: 0 }),
      lane(3, { kind: "thread", thread: "autograd", tid: 2, events: 9 }),
      lane(4, { kind: "thread", thread: "main", title: "inner frames", events: 700 }),
      lane(5, { kind: "thread", thread: "main", title: "frames", events: 90 }),
    ],
  };
  const [group, ...more] = layerGroups(layer, clock, "/api/traces/t");
  assert.equal(more.length, 0);
  assert.equal(group.title, "policy 1");
  assert.equal(group.note, "torch · 824 events");
  assert.deepEqual(
    group.lanes.map(({ key, title, isQuiet }) => [key, title, isQuiet]),
    [
      ["3.1", "GPU 0, stream 7", false],
      ["3.3", "autograd", false],
      ["3.0", "main", false],
      ["3.5", "Python, main", false], // frames stand below what their thread does, however many they are
      ["3.4", "inside frameworks, main", true],
    ],
  );

  const streams = [lane(0, { kind: "stream", process: "", pid: -1, device: 0 }), lane(1, { kind: "thread" })];
  const [untold] = layerGroups(
    { ...layer, lanes: [lane(0, { kind: "stream", stream: 7 }), lane(1, { kind: "stream", stream: -1 })] },
    clock,
    "/api/traces/t",
  );
  assert.deepEqual(untold.lanes.map(({ title }) => title).sort(), ["GPU", "GPU, stream 7"]); // no number is shown as -1
  const [ofDevices, ofHost] = layerGroups({ ...layer, role: "", lanes: streams }, clock, "/api/traces/t");
  assert.deepEqual([ofDevices.title, ofHost.title], ["a.json", "python"]); // of no process that the file tells
});
