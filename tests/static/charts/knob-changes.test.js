import assert from "node:assert/strict";
import { test } from "node:test";
import { changeMarks, valueText } from "../../../static/js/charts/knob-changes.js";
import { tellMarks } from "../../../static/js/charts/near.js";

const change = (step, more = {}) => ({
  knob: "rollout.temperature",
  label: "Temperature",
  old: 1,
  new: 0.7,
  step,
  by: "ada",
  is_visible: true,
  ...more,
});

test("values are written as people type them", () => {
  assert.deepEqual([3e-4, 0.001, 1e-7, 0, 20, 0.7].map(valueText), ["3e-4", "0.001", "1e-7", "0", "20", "0.7"]);
});

test("changes of one step share a mark, and those of dead branches have none", () => {
  const marks = changeMarks([
    change(5),
    change(5, { label: "Learning rate", old: 3e-4, new: 1e-3 }),
    change(9, { is_visible: false }),
  ]);
  assert.deepEqual(marks, [
    {
      x: 5,
      type: "change",
      text: "Temperature 1 → 0.7 from step 5 on, by ada\nLearning rate 3e-4 → 0.001 from step 5 on, by ada",
    },
  ]);
});

test("a cursor near marks reads what stands there, those without words have none", () => {
  const marks = [
    { x: 5, type: "change", text: "a" },
    { x: 6, type: "change", text: "b" },
    { x: 5, type: "checkpoint" },
  ];
  const read = (left) => {
    const plot = { cursor: { left }, over: { title: "before" }, posToVal: (pixels) => pixels / 12 };
    tellMarks(plot, marks);
    return plot.over.title;
  };
  assert.equal(read(5.4 * 12), "a");
  assert.equal(read(5.5 * 12), "a\nb");
  assert.equal(read(20 * 12), "");
});
