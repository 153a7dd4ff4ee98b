import assert from "node:assert/strict";
import { test } from "node:test";
import { causePlace } from "../../../static/js/run/header.js";
import { finalWord, oneLine, reward } from "../../../static/js/run/sample.js";

test("rewards line up with two decimals and a true minus", () => {
  assert.equal(reward(1), "1.00");
  assert.equal(reward(-0.5), "−0.50");
  assert.equal(reward(-0.002), "0.00");
  assert.equal(reward(null), "—");
});

test("a completion ends with its last number, else with its last words", () => {
  assert.equal(finalWord("first 12, so 1,234.5"), "1,234.5");
  assert.equal(finalWord("it is -7."), "-7");
  assert.equal(finalWord("no digits\nhere but a long sentence"), "… but a long sentence");
  assert.equal(finalWord("short"), "short");
  assert.equal(finalWord(" \n"), "—");
  assert.equal(oneLine(" a\n\tb  c "), "a b c");
});

test("a cause says whose fault it is, and where", () => {
  assert.equal(causePlace({ side: "trainer", role: "policy", rank: 1, step: 143 }), "Trainer, policy 1, step 143:");
  assert.equal(causePlace({ side: "cluster", role: "driver", step: -1 }), "Cluster, driver:");
  assert.equal(causePlace({}), "Unknown side:");
});
