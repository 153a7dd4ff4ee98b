import assert from "node:assert/strict";
import { test } from "node:test";
import { Clock, niceStep } from "../../../static/js/timeline/clock.js";

test("Unix ns survive as offsets and back, though a double cannot hold them", () => {
  const clock = new Clock("1760000000000000001");
  assert.equal(clock.offset("1760000000000000043"), 42);
  assert.equal(clock.absolute(42), "1760000000000000043");
  assert.equal(clock.date(2e6).getTime(), 1760000000002);
});

test("without an origin the first moment is it, and the unit is the clock's", () => {
  const clock = new Clock(null, 1e9);
  assert.equal(clock.absolute(0), "0");
  assert.equal(clock.offset("1760000000000000001"), 0);
  assert.equal(clock.offset("1760000002500000001"), 2.5);
  assert.equal(clock.absolute(2.5), "1760000002500000001");
  assert.equal(clock.date(2.5).getTime(), 1760000002500);
});

test("ticks are at 1, 2, 5 × 10ⁿ, above half a minute at whole minutes", () => {
  const cases = [
    [0, 1],
    [3, 5],
    [5, 5],
    [6_000, 10_000],
    [31e9, 60e9],
    [61e9, 120e9],
    [100_000e9, 172_800e9],
  ];
  for (const [least, step] of cases) assert.equal(niceStep(least, 1e9), step);
  assert.deepEqual(
    [0.03, 12, 31, 4000].map((least) => niceStep(least, 1)),
    [0.05, 20, 60, 7200],
  );
});
