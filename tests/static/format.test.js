import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, bytes, figure, fill, grouped, interval, laneName, ngettext, shownState } from "../../static/js/format.js";

test("whole numbers have groups of three, a missing one is a dash", () => {
  assert.equal(grouped(12480.9), "12,480");
  assert.equal(grouped(0), "0");
  assert.equal(grouped(null), "—");
});

test("measured numbers have four digits that mean something", () => {
  const cases = [
    [0, "0"],
    [0.93824, "0.9382"],
    [-1.5, "−1.5"],
    [0.0003, "3.00e-4"],
    [1234.4, "1,234"],
    [38_912, "38.9k"],
    [1_250_000, "1.3M"],
    [NaN, "NaN"],
    [-Infinity, "−Infinity"],
    ["-Infinity", "−Infinity"],
    [null, "—"],
  ];
  for (const [value, text] of cases) assert.equal(figure(value), text);
});

test("bytes are in binary units", () => {
  assert.equal(bytes(1023), "1023 B");
  assert.equal(bytes(1536), "1.5 KiB");
  assert.equal(bytes(80 * 2 ** 30), "80.0 GiB");
  assert.equal(bytes(2 ** 50), "1024.0 TiB");
});

test("an age is in the unit that fits", () => {
  assert.equal(ago(4_000), "4 s ago");
  assert.equal(ago(720_000), "12 min ago");
  assert.equal(ago(11_100_000), "3 h 05 min ago");
  assert.equal(ago(187_200_000), "2 d 4 h ago");
});

test("an estimate is the interval that it is", () => {
  assert.equal(interval([1320, 1500]), "22–25 min");
  assert.equal(interval([30, 30.2]), "30 s");
  assert.equal(interval([7200, 9000]), "2.0–2.5 h");
  assert.equal(interval(null), "—");
});

test("texts are filled by name, and what is missing is empty", () => {
  assert.equal(fill("%(n)s of %(of)s", { n: 0 }), "0 of ");
  assert.equal(ngettext("one", "many", 1), "one");
  assert.equal(ngettext("one", "many", 0), "many");
});

test("lost contact stands in front of a live state only", () => {
  assert.equal(shownState("running", true), "lost");
  assert.equal(shownState("finished", true), "finished");
});

test("lanes are named by role and rank", () => {
  assert.equal(laneName({ role: "vllm", rank: 1 }), "vLLM 1");
  assert.equal(laneName({ role: "driver", rank: 0 }), "driver");
});
