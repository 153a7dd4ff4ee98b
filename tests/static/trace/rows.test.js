import assert from "node:assert/strict";
import { test } from "node:test";
import { sorted } from "../../../static/js/trace/rows.js";

// "a" runs from 10 to 20, "b" from 30 to 40, given in the other order
const row = () =>
  sorted({
    start: [30, 10],
    end: [40, 20],
    name: [1, 0],
    id: [8, 7],
    table: { names: ["a", "b"], cats: [8, 10] },
    about: [{ step: 2 }, { step: 1 }],
  });

test("events are sorted by begin, with all that belongs to them", () => {
  const made = row();
  assert.deepEqual([...made.start], [10, 30]);
  assert.deepEqual([...made.id], [7, 8]);
  assert.deepEqual(
    [0, 1].map((i) => [made.text(i), made.category(i), made.about[i].step]),
    [
      ["a", 8, 1],
      ["b", 10, 2],
    ],
  );
});

test("the first event after a time is the one that has not ended", () => {
  const made = row();
  assert.deepEqual(
    [0, 19, 20, 35, 40].map((time) => made.firstAfter(time)),
    [0, 0, 1, 1, 2],
  );
});

test("a point hits the event under it, or the nearest one within the slack", () => {
  const made = row();
  assert.equal(made.at(15, 0), 0);
  assert.equal(made.at(25, 2), -1);
  assert.equal(made.at(22, 3), 0);
  assert.equal(made.at(28, 3), 1);
  assert.equal(made.at(45, 3), -1);
});
