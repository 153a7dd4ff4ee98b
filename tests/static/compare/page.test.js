import assert from "node:assert/strict";
import { test } from "node:test";
import { address, plain } from "../../../static/js/compare/page.js";

function at(search) {
  globalThis.location = { href: `http://console/compare${search}`, search };
}

test("a link of the server takes what the browser keeps in the address", () => {
  at("?runs=r-1,r-2&tab=verdict&smooth=0.9&q=kl");
  assert.equal(
    address("/compare?runs=r-1&tab=verdict&smooth=0.1&x=time"),
    "/compare?runs=r-1&tab=verdict&smooth=0.9&q=kl",
  );
});

test("the filter of metrics stays on its tab", () => {
  at("?runs=r-1&tab=charts&q=kl");
  assert.equal(address("/compare?runs=r-1&tab=timing"), "/compare?runs=r-1&tab=timing");
});

test("a query is as people read it", () => {
  assert.equal(plain(new URLSearchParams({ runs: "r-1,r-2", m: "reward/mean" })), "?runs=r-1,r-2&m=reward/mean");
  assert.equal(plain(new URLSearchParams()), "");
});
