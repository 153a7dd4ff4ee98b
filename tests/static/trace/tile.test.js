import assert from "node:assert/strict";
import { test } from "node:test";
import { COLUMNS, Tile } from "../../../static/js/trace/tile.js";

/** A tile as it travels: the header's length, the header, columns that begin at multiples of eight bytes. */
function travelling(header, columns) {
  const head = new TextEncoder().encode(JSON.stringify(header));
  const parts = [new Uint8Array(new Uint32Array([head.length]).buffer), head];
  let size = 4 + head.length;
  for (const column of columns) {
    const gap = (8 - (size % 8)) % 8;
    parts.push(new Uint8Array(gap), new Uint8Array(column.buffer));
    size += gap + column.byteLength;
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole.buffer;
}

const header = { level: 1, index: 2, names: ["gemm", "copy"], cats: ["kernel", "memcpy"] };

test("an exact tile has its events by row, in order, in ns after the trace's origin", () => {
  const rows = [
    [3, 0],
    [3, 1],
  ];
  const buffer = travelling({ ...header, exact: true, rows, n: 3 }, [
    Uint16Array.of(1, 0, 0),
    Uint16Array.of(1, 0, 1),
    Float64Array.of(5, 20, 10),
    Float64Array.of(1, 2, 3),
    Uint32Array.of(7, 8, 9),
  ]);
  const tile = new Tile(buffer, 100);
  assert.equal(tile.begin, 100 + 2 * 2 * COLUMNS);
  assert.equal(tile.end - tile.begin, 2 * COLUMNS);
  const row = tile.row(3, 0);
  assert.deepEqual([...row.start], [tile.begin + 10, tile.begin + 20]);
  assert.deepEqual([...row.end], [tile.begin + 13, tile.begin + 22]);
  assert.deepEqual([...row.id], [9, 8]);
  assert.equal(tile.row(4, 0), null);
});

test("a thinned tile knows each column's longest event, and what fills many columns", () => {
  const busy = new Uint8Array(COLUMNS);
  const name = new Uint16Array(COLUMNS).fill(65535);
  busy.fill(255, 10, 40);
  name.fill(1, 10, 40);
  busy[100] = 51;
  name[100] = 0;
  const tile = new Tile(travelling({ ...header, exact: false, rows: [[0, 0]] }, [busy, name]), 0);
  const at = (column) => tile.begin + column * 2 + 1; // a column of level 1 is 2 ns
  assert.deepEqual(tile.column(0, at(100)), { text: "gemm", label: "", category: "kernel", busy: 0.2 });
  assert.equal(tile.column(0, at(101)), null);
  assert.equal(tile.column(0, tile.end + 1), null);
  assert.deepEqual(tile.runs, [{ first: 10, row: 0, start: tile.begin + 20, end: tile.begin + 80, name: 1 }]);
});
