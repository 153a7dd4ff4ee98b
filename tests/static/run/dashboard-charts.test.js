import assert from "node:assert/strict";
import { test } from "node:test";
import { firstOf, isSame, moved, resized, withChart, without } from "../../../static/js/run/dashboard-charts.js";

const chart = (metric, width = 1, height = 1) => ({ metric, width, height });
const abc = [chart("a"), chart("b", 2), chart("c", 3, 2)];
const names = (charts) => charts.map(({ metric }) => metric).join("");

test("a chart moves to a place in the new order, and beyond an end to that end", () => {
  assert.equal(names(moved(abc, "a", 1)), "bac");
  assert.equal(names(moved(abc, "c", 0)), "cab");
  assert.equal(names(moved(abc, "a", Infinity)), "bca");
  assert.equal(names(moved(abc, "c", -Infinity)), "cab");
  assert.equal(moved(abc, "x", 0), abc);
  assert.deepEqual(moved(abc, "c", 0)[0], chart("c", 3, 2), "its size stays");
});

test("a size is whole columns and rows, one to three", () => {
  assert.deepEqual(resized(abc, "a", { width: 2.4, height: 0.2 })[0], chart("a", 2, 1));
  assert.deepEqual(resized(abc, "a", { width: 9, height: 9 })[0], chart("a", 3, 3));
  assert.equal(names(resized(abc, "a", { width: 2, height: 2 })), "abc");
});

test("a chart is added once and taken away", () => {
  assert.equal(names(withChart(abc, "d")), "abcd");
  assert.equal(withChart(abc, "b"), abc);
  assert.equal(names(without(abc, "b")), "ac");
  assert.ok(isSame(abc, [...abc]));
  assert.ok(!isSame(abc, moved(abc, "a", 1)));
  assert.ok(!isSame(abc, resized(abc, "a", { width: 2, height: 1 })));
});

test("a tab opens with what the address names, then one's own default, the project's, the first", () => {
  const board = (id, more = {}) => ({ id, is_default: false, is_shared: false, ...more });
  const ours = board("ours", { is_default: true, is_shared: true });
  const own = board("own", { is_default: true });
  const boards = [board("first"), ours, own];
  assert.equal(firstOf(boards, "first")?.id, "first");
  assert.equal(firstOf(boards, null), own);
  assert.equal(firstOf([board("first"), ours], "gone"), ours);
  assert.equal(firstOf([board("first")], null)?.id, "first");
  assert.equal(firstOf([], null), null);
});
