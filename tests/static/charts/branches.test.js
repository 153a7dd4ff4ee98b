import assert from "node:assert/strict";
import { test } from "node:test";
import { Branches } from "../../../static/js/charts/branches.js";

// The first attempt went to step 6, the second goes on from its checkpoint at step 4.
const attempts = [
  { number: 1, visible_through: 4, resume_attempt: null, resume_step: null, step: 6 },
  { number: 2, visible_through: null, resume_attempt: 1, resume_step: 4, step: 8 },
];

test("steps that were resumed past are dead", () => {
  const branches = new Branches(attempts);
  assert.equal(branches.isDead(1, 4), false);
  assert.equal(branches.isDead(1, 5), true);
  assert.equal(branches.isDead(2, 100), false);
  assert.equal(branches.hasDead, true);
  assert.deepEqual(branches.resumes, [{ step: 4, attempt: 2 }]);
});

test("a series is split where the history left it", () => {
  const first = { attempt: 1, x: [2, 4, 5, 6] };
  const second = { attempt: 2, x: [5, 6, 7] };
  const { clean, dead } = new Branches(attempts).split([first, second]);
  assert.deepEqual(clean, [
    { series: first, count: 2, isCut: true },
    { series: second, count: 3, isCut: false },
  ]);
  assert.deepEqual(dead, [{ series: first, from: 1 }]);
});

test("time is never cut", () => {
  const readings = { attempt: 1, kind: "system", x: [2, 9] };
  const { clean, dead } = new Branches(attempts).split([readings]);
  assert.deepEqual(clean, [{ series: readings, count: 2, isCut: false }]);
  assert.deepEqual(dead, []);
});
