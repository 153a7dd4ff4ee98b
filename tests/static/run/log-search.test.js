import assert from "node:assert/strict";
import { test } from "node:test";
import { pieces, search } from "../../../static/js/run/log-search.js";

const line = (cursor) => ({ cursor, text: cursor });
const asking = (answers) => {
  const asked = [];
  const ask = (params) => {
    asked.push(params);
    return Promise.resolve({
      has_older: false,
      has_newer: false,
      searched: "",
      lines: [],
      ...answers[asked.length - 1],
    });
  };
  return { ask, asked };
};

test("a search goes on from where the answer before it ended, and keeps the order of lines", async () => {
  const { ask, asked } = asking([
    { searched: "9.0" },
    { searched: "5.0", lines: [line("6.0")] },
    { lines: [line("2.0")] },
  ]);
  const told = [];

  const answer = await search(ask, { params: { q: "x", before: "12.3" }, limit: 10, onMore: (n) => told.push(n) });

  assert.deepEqual(asked, [
    { q: "x", before: "12.3", limit: "10" },
    { q: "x", before: "9.0", limit: "10" },
    { q: "x", before: "5.0", limit: "9" },
  ]);
  assert.deepEqual(
    answer.lines.map(({ cursor }) => cursor),
    ["2.0", "6.0"],
  );
  assert.deepEqual(told, [0, 1]);
});

test("a moment is where a search forward begins, later answers go on by cursor", async () => {
  const { ask, asked } = asking([
    { searched: "3.9", lines: [line("3.1")] },
    { lines: [line("4.0")], has_newer: true },
  ]);

  const answer = await search(ask, { params: { at: "17" }, limit: 2 });

  assert.deepEqual(asked, [
    { at: "17", limit: "2" },
    { after: "3.9", limit: "1" },
  ]);
  assert.deepEqual(
    answer.lines.map(({ cursor }) => cursor),
    ["3.1", "4.0"],
  );
  assert.equal(answer.has_newer, true);
});

test("what was found is marked, by text or expression", () => {
  const marked = (...given) =>
    pieces(...given)
      .map(({ text, isFound }) => (isFound ? `[${text}]` : text))
      .join("");

  assert.equal(marked("a.b axb", "A.B", false), "[a.b] axb");
  assert.equal(marked("a.b axb", "A.B", true), "[a.b] [axb]");
  assert.equal(marked("abc", "x*", true), "abc");
  assert.equal(marked("abc", "(?<", true), "abc");
  assert.equal(marked("abc", "", true), "abc");
});
