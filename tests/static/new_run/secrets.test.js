import assert from "node:assert/strict";
import { test } from "node:test";
import { namesIn } from "../../../static/js/new_run/parts.js";
import { snapshot } from "../../../static/js/new_run/state.js";

test("names are divided by blanks and commas, each once", () => {
  assert.deepEqual(namesIn(" HF_TOKEN, WANDB_API_KEY\nHF_TOKEN "), ["HF_TOKEN", "WANDB_API_KEY"]);
  assert.deepEqual(namesIn(""), []);
});

test("an input without a name, as those of secrets' values, is in no draft and no step back", () => {
  const form = { elements: [{ name: "environment.secrets", value: "HF_TOKEN" }, { value: "its value" }] };
  assert.deepEqual(snapshot(form), { "environment.secrets": "HF_TOKEN" });
});
