import assert from "node:assert/strict";
import { test } from "node:test";
import { placed } from "../../../static/js/trace/flame_tree.js";

test("calls stand below what called them, the longest first, and never beside it", () => {
  const node = (name, parent, total) => ({ name, parent, total });
  const { tree, roots } = placed([node("short", -1, 10), node("long", -1, 90), node("a", 1, 20), node("b", 1, 60)]);
  assert.deepEqual(
    tree.map(({ name, left }) => [name, left]),
    [
      ["short", 90],
      ["long", 0],
      ["a", 60],
      ["b", 0],
    ],
  );
  assert.deepEqual(
    roots.map(({ name, children }) => [name, children.map((one) => one.name)]),
    [
      ["long", ["b", "a"]],
      ["short", []],
    ],
  );
});
