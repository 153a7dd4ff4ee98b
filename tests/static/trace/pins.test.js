import assert from "node:assert/strict";
import { test } from "node:test";
import { Layout } from "../../../static/js/trace/layout.js";
import { Pins } from "../../../static/js/trace/pins.js";

/** A trace of two lanes whose keys begin with the number of its layer. */
function opened(layer, storage, address = {}) {
  const query = {
    get: (name) => address[name] ?? null,
    set: (name, value) => Object.assign(address, { [name]: value }),
  };
  const layout = new Layout();
  const pins = new Pins({ layout, query, project: "p", storage });
  const lanes = ["main", "stream 7"].map((title, i) => ({ key: `${layer}.${i}`, title, kind: "thread", depths: 1 }));
  const groups = [{ key: "g", title: "process", note: "", lanes }];
  pins.know(groups);
  layout.setGroups(groups);
  return { layout, pins, address };
}

test("what is pinned is in the address, and pinned by name in the next trace of the project", () => {
  const kept = new Map();
  const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  const one = opened(1, storage);
  assert.deepEqual(one.layout.pinned, []);
  one.layout.pin("1.1");
  one.pins.keep();
  assert.equal(one.address.pin, "1.1");
  assert.deepEqual(opened(2, storage).layout.pinned, ["2.1"]);
  assert.deepEqual(opened(2, storage, { pin: "2.0" }).layout.pinned, ["2.0"]); // a link shows what it says
  assert.deepEqual(opened(2, storage, { pin: "none" }).layout.pinned, []);
});

test("what a browser keeps that is no list pins nothing", () => {
  const storage = { getItem: () => "{", setItem: () => {} };
  assert.deepEqual(opened(1, storage).layout.pinned, []);
});
