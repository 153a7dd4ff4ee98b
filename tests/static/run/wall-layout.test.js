import assert from "node:assert/strict";
import { test } from "node:test";
import { cardsBetween, heightOf, placeOf } from "../../../static/js/run/wall-layout.js";

const block = { top: 1000, count: 10, columns: 4 };

test("a section is as high as all its rows, whatever is in the page", () => {
  assert.equal(heightOf(block, 192), 3 * 192);
  assert.equal(heightOf({ count: 0, columns: 4 }, 192), 0);
});

test("the cards of the rows that touch the screen, and no others", () => {
  assert.deepEqual(cardsBetween(block, 1000, 1192, 192), [0, 4]);
  assert.deepEqual(cardsBetween(block, 1191, 1193, 192), [0, 8]);
  assert.deepEqual(cardsBetween(block, 1192, 5000, 192), [4, 10]);
  for (const [from, to] of [
    [0, 1000],
    [1576, 3000],
    [-3000, -1000],
  ]) {
    const [first, end] = cardsBetween(block, from, to, 192);
    assert.equal(first, end, `${from} to ${to}`);
  }
});

test("cards fill row by row", () => {
  assert.deepEqual(placeOf(9, 4), { row: 2, column: 1 });
});
