import assert from "node:assert/strict";
import { test } from "node:test";
import { Row } from "../../../static/js/timeline/row.js";

const row = new Row([10, 30], [20, 40]);

test("the first span after a time is the one that has not ended", () => {
  assert.equal(row.length, 2);
  assert.deepEqual(
    [0, 19, 20, 35, 40].map((time) => row.firstAfter(time)),
    [0, 0, 1, 1, 2],
  );
});

test("a point hits the span under it, or the nearest one within the slack", () => {
  assert.equal(row.at(15, 0), 0);
  assert.equal(row.at(25, 2), -1);
  assert.equal(row.at(22, 3), 0);
  assert.equal(row.at(28, 3), 1);
  assert.equal(row.at(45, 3), -1);
});

test("of two spans within the slack the one under the point is hit", () => {
  assert.equal(new Row([0, 10], [10, 20]).at(10.5, 2), 1);
});
