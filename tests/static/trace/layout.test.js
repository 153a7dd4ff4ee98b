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
  // head 22; a phase row 18 + 1, an event row 14 + 1, a gap of 4 below each lane; 8 rows of a deep lane and its handle of 12
  const made = layout();
  assert.deepEqual(
    made.items.map(({ y }) => y),
    [0, 22, 45, 67, 101],
  );
  assert.equal(made.height, 101 + 8 * 15 + 12 + 4);
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

test("a handle says how many rows there are more, and takes them back", () => {
  const made = layout();
  const more = () => made.items.find((item) => item.lane?.key === "deep").more;
  const seen = [more()];
  made.toggleRows("deep");
  seen.push(more());
  made.toggle(made.items.find((item) => item.lane?.key === "deep"));
  seen.push(more());
  assert.deepEqual(seen, [12, -12, 0]);
  assert.equal(made.items.find((item) => item.lane?.key === "a").more, 0);
});

test("pinned lanes stand above all groups, in the order in which people put them", () => {
  const made = layout();
  const order = () => made.items.map((item) => item.lane?.key ?? item.group.key);
  made.pin("deep");
  made.pin("p");
  assert.deepEqual(order(), ["pinned", "deep", "p", "file", "a"]);
  made.move("p", -1);
  assert.deepEqual(order(), ["pinned", "p", "deep", "file", "a"]);
  assert.equal(made.items[1].group.key, "phases"); // whose lane it is stays known
  made.toggle(made.items[0]);
  assert.deepEqual(order(), ["pinned", "file", "a"]);
  assert.equal(made.reveal("deep", 12).rows, 20);
  made.pin("deep");
  assert.deepEqual(order(), ["pinned", "p", "file", "a", "deep"]);
});

test("an arrow ends in the row of its event, or in the head of what is folded away", () => {
  const layout = new Layout();
  const lane = { key: "1.0", title: "main", kind: "thread", depths: 20 };
  layout.setGroups([{ key: "g", title: "process", note: "", lanes: [lane] }]);
  const at = (depth, laneKey = "1.0") => layout.middleOf({ laneKey, depth });
  assert.equal(at(0), 22 + 7);
  assert.equal(at(3), 22 + 3 * 15 + 7);
  assert.equal(at(15), at(7)); // the last row that is shown
  assert.equal(at(0, "1.9"), null);
  layout.toggle(layout.items[0]);
  assert.equal(at(3), 11);
  layout.show("1.0", false);
  assert.equal(at(3), null);
});

test("lanes of a group take the order that people give them, past those that are not in sight", () => {
  const made = new Layout();
  const lanes = ["a", "b", "c", "d"].map((key) => lane(key, 1));
  made.setGroups([{ key: "file", lanes }]);
  const order = () => made.items.flatMap(({ lane: one }) => one?.key ?? []);
  made.show("b", false);
  made.move("a", 1);
  assert.deepEqual(order(), ["c", "a", "d"]);
  made.move("d", 1); // the last one stays
  assert.deepEqual(order(), ["c", "a", "d"]);
  made.setGroups([{ key: "file", lanes: [lane("new", 1), ...lanes] }]); // another file's lanes come
  assert.deepEqual(order(), ["c", "a", "d", "new"]);
});
