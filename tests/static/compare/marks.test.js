import assert from "node:assert/strict";
import { test } from "node:test";
import { marksOf } from "../../../static/js/compare/marks.js";

const own = {
  checkpoints: [10],
  captures: [{ steps: [3, 4], tool: "torch" }],
  symptoms: [{ title: "Reward is flat", tone: "alarm", begin_step: 2, end_step: null, newest: 12 }],
  restarts: [],
  changes: [],
  alerts: [],
  notes: [{ step: 6, text: "odd", by: "" }],
  places: null,
};
const page = (places, axis) => ({
  common: 9,
  axis,
  runs: [
    { marks: { ...own, places }, short: "a", color: 12 },
    { marks: undefined, short: "b", color: 1 },
  ],
});

test("what happened to a run is marked in its color and named", () => {
  const marks = marksOf(page(null, "step"), "step");
  assert.deepEqual(
    marks.map(({ type, x, to, color }) => [type, x, to, color]),
    [
      ["common", 9, undefined, undefined],
      ["checkpoint", 10, undefined, "--run-2"],
      ["capture", 3, 4, "--run-2"],
      ["alarm", 2, 12, "--run-2"],
      ["note", 6, undefined, "--run-2"],
    ],
  );
  assert.equal(marks[1].text, "a: Checkpoint of step 10");
});

test("on another axis marks stand where the console says that their steps are", () => {
  const marks = marksOf(page({ 10: 20.5, 3: 6, 4: 8, 2: 4 }, "time"), "time");
  assert.deepEqual(
    marks.map(({ type, x, to }) => [type, x, to]),
    [
      ["checkpoint", 20.5, undefined],
      ["capture", 6, 8],
      ["alarm", 4, 4], // its end is not placed yet
    ],
  );
  assert.deepEqual(marksOf(page(null, "step"), "time"), []);
});
