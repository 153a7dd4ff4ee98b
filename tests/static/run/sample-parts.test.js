import assert from "node:assert/strict";
import { test } from "node:test";
import { isInRange, rangeOf, rangeOfBins, rangeText, scaleOf } from "../../../static/js/run/sample-range.js";
import { changesOf, levelOf, tokensOf } from "../../../static/js/run/sample-text.js";

test("bins become a range in either order, open at the ends of the histogram", () => {
  const edges = [0, 0.25, 0.5, 0.75, 1];
  assert.deepEqual(rangeOfBins(edges, 2, 1), { from: 0.25, below: 0.75 });
  assert.deepEqual(rangeOfBins(edges, 0, 1), { from: null, below: 0.5 });
  assert.deepEqual(rangeOfBins(edges, 3, 3), { from: 0.75, below: null });
  const chosen = [0, 1, 2, 3].filter((bin) => isInRange(edges, bin, { from: 0.25, below: 0.75 }));
  assert.deepEqual(chosen, [1, 2]);
});

test("a range stands in the address and what is none there is all", () => {
  for (const range of [
    { from: 0.25, below: null },
    { from: null, below: -1.5 },
    { from: 0, below: 1 },
  ])
    assert.deepEqual(rangeOf(rangeText(range)), range);
  for (const text of [null, "", "..", "x..y", "1", "1..2..3"])
    assert.deepEqual(rangeOf(text), { from: null, below: null });
});

test("values lie between the ends, and one alone in the middle", () => {
  assert.equal(scaleOf([2, 4], 0, 100)(3), 50);
  assert.equal(scaleOf([2], 0, 100)(2), 50);
});

test("tokens are cut by characters as Python counts them, and what was not told stays at the end", () => {
  const told = [
    [1, -0.1],
    [0, -3],
    [2, "-Infinity"],
  ];
  assert.deepEqual(tokensOf("😀ab rest", told), [
    { text: "😀", logprob: -0.1 },
    { text: "ab", logprob: -Infinity },
    { text: " rest", logprob: null },
  ]);
  assert.deepEqual(tokensOf("", []), []);
});

test("the less likely a token was, the higher its level", () => {
  assert.deepEqual([null, -0.05, -0.2, -1, -3, -Infinity, Number.NaN].map(levelOf), [0, 0, 1, 2, 3, 4, 0]);
});

test("what changed between two responses is told word by word", () => {
  const changes = changesOf("It is 4, so yes.", "It is now 5, so yes.");
  assert.deepEqual(changes, [
    { text: "It is ", isNew: false },
    { text: "now 5, ", isNew: true },
    { text: "so yes.", isNew: false },
  ]);
  assert.deepEqual(changesOf("", "all"), [{ text: "all", isNew: true }]);
  assert.equal(changesOf("a", "b ".repeat(2000)), null);
});
