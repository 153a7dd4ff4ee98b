import assert from "node:assert/strict";
import { test } from "node:test";
import { Axis, Brush } from "../../../static/js/tune/axis.js";

const column = (id, more = {}) => ({ id, label: id, unit: "", isKnob: true, isLog: false, words: [], ...more });
const run = (id, values) => ({ id, name: id, color: 0, values });
const runs = [run("a", { rate: 1e-4, kind: "k1" }), run("b", { rate: 1e-3, kind: "k3" }), run("c", { rate: 1e-2 })];

test("a log axis stands in decades, and back", () => {
  const axis = new Axis(column("rate", { isLog: true }), runs);
  assert.deepEqual(
    runs.map((one) => Number(axis.shareOf(axis.number(one)).toFixed(6))),
    [0, 0.5, 1],
  );
  assert.ok(Math.abs(axis.numberAt(0.5) - 1e-3) < 1e-12);
  assert.equal(axis.text(1e-4), "1e-4");
});

test("words stand at their places, and one value has room around it", () => {
  const axis = new Axis(column("kind", { words: ["k1", "k3"] }), runs);
  assert.deepEqual(
    runs.map((one) => axis.number(one)),
    [0, 1, Number.NaN],
  );
  assert.equal(axis.text(1), "k3");
  const single = new Axis(column("rate"), runs.slice(0, 1));
  assert.equal(single.shareOf(1e-4), 0.5);
  assert.ok(new Axis(column("best"), runs).isEmpty);
});

test("a run is in if it lies in all ranges, and the address keeps them", () => {
  const axes = new Map([
    ["rate", new Axis(column("rate", { isLog: true }), runs)],
    ["kind", new Axis(column("kind", { words: ["k1", "k3"] }), runs)],
  ]);
  const brush = new Brush();
  const ids = () => runs.filter((one) => brush.holds(one, axes)).map(({ id }) => id);
  assert.deepEqual(ids(), ["a", "b", "c"]);
  brush.set("rate", [2e-2, 5e-4]);
  assert.deepEqual(ids(), ["b", "c"]);
  brush.set("kind", [0.5, 1.5]);
  assert.deepEqual(ids(), ["b"]);
  const text = brush.toText();
  assert.equal(text, "rate:0.0005_0.02;kind:0.5_1.5");
  for (const [range, isIn] of /** @type {[[number, number], boolean][]} */ ([
    [[0.8, 0.8916], true], // as its number is written
    [[0.8916114, 1], false],
    [[0.891611, 1], true],
  ])) {
    brush.ranges.clear();
    brush.set("rate", range);
    assert.equal(brush.holds(run("d", { rate: 0.89161134 }), axes), isIn, String(range));
  }
  brush.read(`${text};other:1_2;rate:x_y;`, axes);
  assert.deepEqual(
    [...brush.ranges],
    [
      ["rate", [5e-4, 2e-2]],
      ["kind", [0.5, 1.5]],
    ],
  );
});

test("numbers of knobs are short", () => {
  const axis = new Axis(column("rate"), runs);
  assert.deepEqual(
    [3e-4, 0.003, 12, -1e-5].map((value) => axis.text(value)),
    ["3e-4", "0.003", "12", "-1e-5"],
  );
});
