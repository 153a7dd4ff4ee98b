import assert from "node:assert/strict";
import { test } from "node:test";
import { itemsBetween } from "../../../static/js/timeline/layout.js";
import { Layout } from "../../../static/js/trace/layout.js";

const lane = (key, depths, kind = "event") => ({ key, depths, kind });

function layout() {
  const made = new Layout();
  made.setGroups([
    { key: "phases", lanes: [lane("p", 1, "phase")] },
    { key: "file", lanes: [lane("a", 2), lane("deep", 20)] },
  ]);
  return made;
}

test("heads, lanes and rows stand below each other", () => {
  // head 22; a phase row 18 + 1, an event row 14 + 1, a gap of 4 below each lane; 8 rows of a deep lane
  const made = layout();
  assert.deepEqual(
    made.items.map(({ y }) => y),
    [0, 22, 45, 67, 101],
  );
  assert.equal(made.height, 101 + 8 * 15 + 4);
});

test("only what is between two heights is found", () => {
  const found = itemsBetween(layout().items, 45, 68);
  assert.deepEqual(
    found.map(({ type, y }) => [type, y]),
    [
      ["group", 45],
      ["lane", 67],
    ],
  );
});

test("a deep lane opens fully before it folds, then opens again as usual", () => {
  const made = layout();
  const rows = () => made.items.find((item) => item.lane?.key === "deep").rows;
  const seen = [rows()];
  for (let i = 0; i < 3; i += 1) {
    made.toggle(made.items.find((item) => item.lane?.key === "deep"));
    seen.push(rows());
  }
  assert.deepEqual(seen, [8, 20, 1, 8]);
});

test("a lane is brought into sight from a folded group, as deep as asked", () => {
  const made = layout();
  made.toggle(made.items[2]);
  made.show("deep", false);
  assert.equal(made.items.length, 3);
  assert.equal(made.reveal("deep", 12).rows, 20);
  assert.equal(made.reveal("nobody"), null);
});
