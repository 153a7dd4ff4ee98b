import assert from "node:assert/strict";
import { test } from "node:test";
import { Merges } from "../../../static/js/run/merges.js";

const CHECKPOINTS = [{ type: "checkpoint" }];

test("files are shown without the merges where these cannot be read, and what was known stays", async (t) => {
  const merges = new Merges({ page: { api: "/api/runs/r" }, onChange: () => {} });
  merges.list = [{ state: "queued" }];
  t.mock.method(globalThis, "fetch", async () => {
    throw new TypeError("network");
  });

  await merges.load(CHECKPOINTS);

  assert.deepEqual(merges.list, [{ state: "queued" }]);
  assert.ok(merges.isWaiting);
  assert.ok(!merges.isMaking);
});
