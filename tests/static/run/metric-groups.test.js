import assert from "node:assert/strict";
import { test } from "node:test";
import { KeptNames } from "../../../static/js/run/kept-names.js";
import { sectionsOf } from "../../../static/js/run/metric-groups.js";

const metrics = ["z/1", "grad/layer_10", "grad/layer_2", "reward/mean", "loss", "reward/max"].map((name) => ({
  kind: "metric",
  name,
}));
metrics.push({ kind: "system", name: "gpu/util" });

const memory = () => {
  const kept = new Map();
  return { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
};

test("what people look at first stands first, machines last, numbers in names count as numbers", () => {
  assert.deepEqual(
    sectionsOf(metrics, () => false).map(({ key, metrics: own }) => [key, own.map(({ name }) => name)]),
    [
      ["reward/", ["reward/max", "reward/mean"]],
      ["grad/", ["grad/layer_2", "grad/layer_10"]],
      ["z/", ["z/1"]],
      ["~other", ["loss"]],
      ["~system", ["gpu/util"]],
    ],
  );
});

test("what is pinned by name or prefix stands above all, in the next page too", () => {
  const storage = memory();
  const pins = new KeptNames("here", storage);
  pins.toggle("grad/");
  pins.toggle("loss");
  const again = new KeptNames("here", storage);
  assert.equal(again.over("grad/layer_99"), "grad/");
  assert.equal(again.over("gradient"), null);
  const [first] = sectionsOf(metrics, (name) => again.over(name) !== null);
  assert.deepEqual(
    first.metrics.map(({ name }) => name),
    ["grad/layer_2", "grad/layer_10", "loss"],
  );
  again.toggle("grad/");
  assert.equal(new KeptNames("here", storage).over("grad/layer_2"), null);
});

test("what a browser keeps that is no list keeps nothing", () => {
  assert.equal(new KeptNames("here", { getItem: () => "{", setItem: () => {} }).names.size, 0);
});
