import assert from "node:assert/strict";
import { test } from "node:test";
import { COLUMNS } from "../../../static/js/trace/tile.js";
import { Tiles } from "../../../static/js/trace/tiles.js";

const lanes = [{ id: 1, depths: 2 }];
const tiles = () => new Tiles({ url: "/t", made: 5, origin: 0, lanes });

test("the level is the one at which a column is at least a pixel wide", () => {
  assert.equal(Tiles.level(1), 0);
  assert.equal(Tiles.level(2), 1);
  assert.equal(Tiles.level(3), 2);
  assert.equal(Tiles.level(0.01), 0);
});

test("what is missing is asked for by address, once it is not known", () => {
  const missing = [];
  assert.deepEqual(tiles().cover(0, 0, 2 * COLUMNS, 1, missing), []);
  assert.deepEqual(
    missing.map(({ url, hasOther }) => [url, hasOther]),
    [
      ["/t/tiles/1/0?made=5", false],
      ["/t/tiles/1/1?made=5", false],
    ],
  );
});

test("an exact coarser tile serves every closer view, a thinned one only until the own one comes", () => {
  const made = tiles();
  const coarse = { isExact: false };
  made.known.set("0/3/0", coarse);
  const missing = [];
  assert.deepEqual(made.cover(0, 10, 20, 0, missing), [{ tile: coarse, from: 10, to: 20 }]);
  assert.equal(missing.length, 1);
  assert.equal(missing[0].hasOther, true);
  coarse.isExact = true;
  assert.equal(made.cover(0, 10, 20, 0, missing).length, 1);
  assert.equal(missing.length, 1);
});

test("finer tiles fill in for one that is missing", () => {
  const made = tiles();
  const fine = { isExact: false };
  made.known.set("0/0/1", fine);
  assert.deepEqual(made.cover(0, 0, 2 * COLUMNS - 1, 1, []), [{ tile: fine, from: COLUMNS, to: 2 * COLUMNS - 1 }]);
});

test("lanes are in blocks of so many rows", () => {
  const many = [50, 40, 30].map((depths, id) => ({ id, depths }));
  const made = new Tiles({ url: "/t", made: 5, origin: 0, lanes: many });
  assert.deepEqual(made.blocks, [[0, 1], [2]]);
  assert.equal(made.blockOf.get(2), 1);
});
