import assert from "node:assert/strict";
import { test } from "node:test";
import { Query } from "../../static/js/query.js";

test("the address follows what is set, and holds nothing that is empty", () => {
  globalThis.location = { search: "?x=time&zoom=1_2", pathname: "/runs/r-1" };
  const written = [];
  globalThis.history = { state: null, replaceState: (_state, _title, url) => written.push(url) };
  const query = new Query();
  query.set("zoom", "");
  query.set("smooth", "0.9");
  assert.equal(query.get("x"), "time");
  query.write();
  assert.deepEqual(written, ["/runs/r-1?x=time&smooth=0.9"]);
  assert.equal(query.on("/runs/r-1/logs"), "/runs/r-1/logs?x=time&smooth=0.9");
  query.set("x", "");
  query.set("smooth", "");
  query.write();
  assert.equal(written.at(-1), "/runs/r-1");
});
