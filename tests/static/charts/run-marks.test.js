import assert from "node:assert/strict";
import { test } from "node:test";
import {
  alertMarks,
  captureMarks,
  checkpointMarks,
  noteMarks,
  restartMarks,
} from "../../../static/js/charts/run-marks.js";

test("checkpoints of the history are marked, those left behind and other files are not", () => {
  const artifacts = [
    { type: "checkpoint", attempt: 1, step: 10 },
    { type: "checkpoint", attempt: 1, step: 20 },
    { type: "model", attempt: 2, step: 20 },
    { type: "checkpoint", attempt: 2, step: 0 },
  ];
  const isDead = (attempt, step) => attempt === 1 && step > 10;
  assert.deepEqual(checkpointMarks(artifacts, isDead), [{ x: 10, type: "checkpoint", text: "Checkpoint of step 10" }]);
});

test("restarts and captures say what they are, one that has no steps yet has no mark", () => {
  assert.deepEqual(restartMarks([{ step: 10, attempt: 2 }]), [
    { x: 10, type: "resume", text: "Attempt 2 goes on from the checkpoint of step 10" },
  ]);
  const captures = [
    { tool: "torch", steps: [3, 5] },
    { tool: "nsys", steps: null },
  ];
  assert.deepEqual(captureMarks(captures), [{ x: 3, to: 5, type: "capture", text: "Recorded with torch, steps 3–5" }]);
});

test("notes and alerts of one step share a mark, an alert without a step has none", () => {
  const notes = [
    { step: 4, text: "new data", by: "ada" },
    { step: 4, text: "and a new reward", by: "" },
    { step: 0, text: "begins cold", by: "bob" },
  ];
  assert.deepEqual(noteMarks(notes), [
    { x: 4, type: "note", text: "new data (ada)\nand a new reward" },
    { x: 0, type: "note", text: "begins cold (bob)" },
  ]);
  const alerts = [
    { step: 7, title: "x lost contact", opened_at: "" },
    { step: null, title: "The queue is long", opened_at: "" },
  ];
  assert.deepEqual(alertMarks(alerts), [{ x: 7, type: "alert", text: "Alert: x lost contact" }]);
});
