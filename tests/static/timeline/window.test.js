import assert from "node:assert/strict";
import { test } from "node:test";
import { between, fitted, moved, ticks, zoomed } from "../../../static/js/timeline/window.js";

const LIMITS = { narrowest: 2, room: 10, selection: 0 };
const EXTENT = { from: 0, to: 100 };

test("zooming leaves the moment under the mouse where it is", () => {
  assert.deepEqual(zoomed({ from: 0, to: 100 }, 0.5, 20), { from: 10, to: 60 });
  assert.deepEqual(zoomed({ from: 10, to: 60 }, 2, 20), { from: 0, to: 100 });
  assert.deepEqual(zoomed({ from: 0, to: 100 }, 0.5), { from: 25, to: 75 });
});

test("a window moves as a whole, and two moments make one in either order", () => {
  assert.deepEqual(moved({ from: 3, to: 5 }, -2), { from: 1, to: 3 });
  assert.deepEqual(between(7, 4), { from: 4, to: 7 });
  assert.deepEqual(between(4, 7), { from: 4, to: 7 });
});

test("a window within the limits stays as it is", () => {
  assert.deepEqual(fitted({ from: -10, to: 30 }, EXTENT, LIMITS), { from: -10, to: 30 });
});

test("a window is not narrower than the narrowest, around its own middle", () => {
  assert.deepEqual(fitted({ from: 50, to: 51 }, EXTENT, LIMITS), { from: 49.5, to: 51.5 });
});

test("a window goes no further than half of everything beside it", () => {
  assert.deepEqual(fitted({ from: -500, to: -400 }, EXTENT, LIMITS), { from: -50, to: 50 });
  assert.deepEqual(fitted({ from: 400, to: 500 }, EXTENT, LIMITS), { from: 50, to: 150 });
  assert.deepEqual(fitted({ from: -1000, to: 1000 }, EXTENT, LIMITS), { from: -50, to: 150 });
  assert.deepEqual(fitted({ from: -100, to: 100 }, { from: 0, to: 4 }, LIMITS), { from: -10, to: 14 });
});

test("ticks are multiples of the step after the zero, inside the window", () => {
  assert.deepEqual(ticks({ from: 103, to: 121 }, 100, 5), [5, 10, 15, 20]);
  assert.deepEqual(ticks({ from: 93, to: 101 }, 100, 5), [-5, 0]);
});
