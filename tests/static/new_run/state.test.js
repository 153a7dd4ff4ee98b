import assert from "node:assert/strict";
import { test } from "node:test";
import { apply, difference, History, snapshot } from "../../../static/js/new_run/state.js";

test("a form is read and put back, without what is not part of the run", () => {
  const form = { elements: [{ name: "lr", value: "1" }, { name: "csrfmiddlewaretoken", value: "x" }, { name: "" }] };
  assert.deepEqual(snapshot(form), { lr: "1" });
  apply(form, { lr: "2", csrfmiddlewaretoken: "y" });
  assert.deepEqual(
    form.elements.map(({ value }) => value),
    ["2", "x", undefined],
  );
});

test("undo goes back one change at a time, and no change is no step", () => {
  const history = new History({ lr: "1" });
  history.commit({ lr: "1" });
  assert.equal(history.size, 0);
  history.commit({ lr: "2" });
  history.commit({ lr: "3" });
  assert.deepEqual([history.back(), history.back(), history.back()], [{ lr: "2" }, { lr: "1" }, null]);
  assert.deepEqual(difference({ a: "1", b: "2" }, { a: "1", b: "3", c: "" }), ["b", "c"]);
});
