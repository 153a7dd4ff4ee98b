import assert from "node:assert/strict";
import { test } from "node:test";
import { StepAxis, stepFrom } from "../../../static/js/charts/step-axis.js";

test("steps stand where the run had come to when they ended, straight in between", () => {
  const axis = new StepAxis([1, 3, 5], [100, 300, 1300]);
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5, 6].map((step) => axis.place(step)),
    [0, 100, 200, 300, 800, 1300, null],
  );
  assert.equal(new StepAxis([], []).place(1), null);
});

test("the first step at a place or behind it is found", () => {
  const axis = new StepAxis([1, 3, 5], [100, 300, 1300]);
  const place = (step) => axis.place(step);
  assert.deepEqual(
    [-5, 0, 100, 101, 799, 1e9].map((at) => stepFrom(place, at, 5)),
    [0, 0, 1, 2, 4, 5],
  );
});
