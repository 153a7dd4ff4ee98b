import assert from "node:assert/strict";
import { test } from "node:test";
import { asQuery, optionOf, rankOf } from "../../../static/js/new_run/index.js";

test("of a pasted option only the name counts", () => {
  assert.equal(asQuery("--learning-rate 1e-5"), "--learning-rate");
  assert.equal(asQuery("optim.lr=1e-5"), "optim.lr");
  assert.equal(asQuery("+trainer.seed=1"), "+trainer.seed");
  assert.equal(asQuery(" Learning Rate "), "learning rate");
  assert.equal(asQuery("--"), "");
});

test("the very name comes before its last words and before a part of it", () => {
  assert.equal(rankOf("--actor-lr", "actor_lr"), 0);
  assert.equal(rankOf("actor.optim.lr", "optim.lr"), 1);
  assert.equal(rankOf("actor.optim.lr", "ptim"), 2);
  assert.equal(rankOf("actor.optim.lr", "seed"), null);
  const flags = [{ name: "a.lr_scale" }, { name: "a.lr" }];
  assert.deepEqual(optionOf({ flags }, "lr"), { name: "a.lr", rank: 1 });
  assert.equal(optionOf(undefined, "lr"), null);
});
