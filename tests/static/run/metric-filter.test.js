import assert from "node:assert/strict";
import { test } from "node:test";
import { metricFilter } from "../../../static/js/run/metric-filter.js";

const NAMES = ["grad_norm/layer_02.attn.q", "grad_norm/layer_12.attn.q", "reward/mean"];
const LABELS = { "reward/mean": "Reward" };
const found = (text, isExpression) => {
  const { matches } = metricFilter(text, isExpression);
  return NAMES.filter((name) => matches(name, LABELS[name] ?? name));
};

test("a text is a part of the name or the label, whatever its case", () => {
  assert.deepEqual(found(" REWARD ", false), ["reward/mean"]);
  assert.deepEqual(found("2.attn", false), NAMES.slice(0, 2));
  assert.deepEqual(found("2.*attn", false), []);
  assert.deepEqual(found("", false), NAMES);
});

test("an expression is tried on the name and on the label", () => {
  assert.deepEqual(found("layer_0[0-9].*\\.Q$", true), ["grad_norm/layer_02.attn.q"]);
  assert.deepEqual(found("^Reward$", true), ["reward/mean"]);
  assert.deepEqual(found("", true), NAMES);
});

test("a broken expression is said in a sentence", () => {
  const { matches, problem } = metricFilter("layer_[0-", true);
  assert.equal(matches, null);
  assert.match(problem, /^“layer_\[0-” is not a regular expression: .+[^.]\.$/);
  assert.doesNotMatch(problem, /Invalid regular expression/);
});
