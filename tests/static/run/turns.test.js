import assert from "node:assert/strict";
import { test } from "node:test";
import { turnsOf } from "../../../static/js/run/turns.js";

const roles = (text) => turnsOf(text).map((turn) => turn.role);

test("plain text is one turn without a role", () => {
  assert.deepEqual(turnsOf("What is 2 + 2?"), [{ role: "", text: "What is 2 + 2?" }]);
  assert.deepEqual(turnsOf(""), []);
  assert.deepEqual(roles("the last user\nsaid so\nuser\nonce"), [""]); // one word on a line makes no conversation
});

test("marks of chat templates give roles, and are not shown", () => {
  const chatml = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  assert.deepEqual(turnsOf(chatml), [
    { role: "system", text: "Be brief." },
    { role: "user", text: "Hi" },
  ]);
  const llama =
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHo";
  assert.deepEqual(roles(llama), ["user", "assistant"]);
  assert.deepEqual(roles("<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHo"), ["user", "model"]);
});

test("what decoding without special tokens leaves is read too", () => {
  const decoded = "system\nYou are Qwen.\nuser\nWhat is 2 + 2?\nassistant\n4";
  assert.deepEqual(turnsOf(decoded), [
    { role: "system", text: "You are Qwen." },
    { role: "user", text: "What is 2 + 2?" },
    { role: "assistant", text: "4" },
  ]);
});

test("thoughts, calls of tools and what they return are turns of their own", () => {
  const response =
    '<think>I add.</think>Let me see.\n<tool_call>\n{"name": "add"}\n</tool_call>\nuser\n<tool_response>\n4\n</tool_response>\nassistant\nIt is 4.';
  assert.deepEqual(turnsOf(response), [
    { role: "think", text: "I add." },
    { role: "", text: "Let me see." },
    { role: "tool_call", text: '{"name": "add"}' },
    { role: "tool", text: "4" },
    { role: "assistant", text: "It is 4." },
  ]);
  assert.deepEqual(roles("<think>cut in the mid"), ["think"]);
});
