import assert from "node:assert/strict";
import { test } from "node:test";
import { Smoothing } from "../../../static/js/charts/smoothing.js";
import { RunStore } from "../../../static/js/run/store.js";

globalThis.requestAnimationFrame = () => 1; // listeners are told by flush()

const frame = (seq, step, loss) => ({
  seq,
  attempt: 1,
  metrics: [{ role: "driver", rank: 0, steps: [step], values: { loss: [loss] } }],
});
const answer = (through, x, y) => ({ through_seq: through, series: [{ name: "loss", x, y, of: x.length }] });
const points = (store) => store.of("loss").map(({ x, y }) => [x, y]);

test("frames count once, in order", () => {
  const store = new RunStore();
  store.startAt(4);
  assert.equal(store.apply(frame(5, 1, 0.5)), "applied");
  assert.equal(store.apply(frame(5, 1, 0.5)), "old");
  assert.equal(store.apply(frame(7, 3, 0.1)), "gap");
  assert.equal(store.apply(frame(6, 2, "NaN")), "applied");
});

test("frames that came while a series was read are added to it", () => {
  const store = new RunStore();
  store.startAt(4);
  store.apply(frame(5, 2, 0.25));
  assert.deepEqual(points(store), []); // nobody has asked for it yet
  assert.equal(store.takeSeries(["loss"], answer(4, [1], [0.5]), new Smoothing()), true);
  assert.deepEqual(points(store), [
    [
      [1, 2],
      [0.5, 0.25],
    ],
  ]);
  store.apply(frame(6, 3, 0.125));
  assert.deepEqual(points(store), [
    [
      [1, 2, 3],
      [0.5, 0.25, 0.125],
    ],
  ]);
});

test("what the answer has already is not added again", () => {
  const store = new RunStore();
  store.startAt(4);
  store.apply(frame(5, 2, 0.25));
  store.takeSeries(["loss"], answer(5, [1, 2], [0.5, 0.25]), new Smoothing());
  assert.deepEqual(points(store), [
    [
      [1, 2],
      [0.5, 0.25],
    ],
  ]);
});

test("an answer from before the kept frames has to be read again", () => {
  const store = new RunStore();
  store.startAt(4);
  assert.equal(store.takeSeries(["loss"], answer(3, [1], [0.5]), new Smoothing()), false);
});

test("following starts where the part that was read first ends", () => {
  const store = new RunStore();
  store.takeSeries(["loss"], answer(3, [1], [0.5]), new Smoothing());
  assert.equal(store.startAt(9), 3);
});

test("listeners are called once for all that changed", () => {
  const store = new RunStore();
  const told = [];
  store.on("series", (names) => told.push([...names]));
  store.touch("series", "loss");
  store.touch("series", "reward");
  store.touch("series", "loss");
  store.flush();
  assert.deepEqual(told, [["loss", "reward"]]);
});

test("few frames of thousands of metrics are kept", () => {
  const store = new RunStore();
  store.startAt(0);
  const values = Object.fromEntries(Array.from({ length: 5000 }, (_none, i) => [`m/${i}`, [0.5]]));
  for (let seq = 1; seq <= 100; seq += 1)
    store.apply({ seq, attempt: 1, metrics: [{ role: "driver", rank: 0, steps: [seq], values }] });
  assert.equal(store.frames.length, 80);
  assert.equal(store.base, 20);
});

test("a metric that is forgotten takes no more points, and stays known", () => {
  const store = new RunStore();
  store.startAt(4);
  store.takeSeries(["loss"], answer(4, [1], [0.5]), new Smoothing());
  store.forget(["loss"]);
  store.apply(frame(5, 2, 0.25));
  assert.deepEqual(points(store), []);
  assert.ok(store.names.has("loss"));
});
