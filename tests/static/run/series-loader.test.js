import assert from "node:assert/strict";
import { test } from "node:test";
import { Smoothing } from "../../../static/js/charts/smoothing.js";
import { SeriesLoader } from "../../../static/js/run/series-loader.js";
import { RunStore } from "../../../static/js/run/store.js";

globalThis.requestAnimationFrame = () => 1;

const numbered = (prefix, count) => Array.from({ length: count }, (_none, i) => `${prefix}/${i}`);
const settled = () => new Promise((resolve) => setImmediate(resolve));

/** A loader whose requests wait for `answer()`. */
function made() {
  const store = new RunStore();
  const asked = [];
  const problems = [];
  const read = (url, { signal } = {}) =>
    new Promise((resolve, reject) => {
      const names = new URLSearchParams(url.split("?")[1]).get("metrics").split(",");
      const series = names.map((name) => ({ name, x: [1], y: [0.5], of: 1 }));
      asked.push({ names, signal, answer: () => resolve({ through_seq: 0, series }), refuse: reject });
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  const view = { smoothing: new Smoothing(), zoom: null };
  const loader = new SeriesLoader({ store, api: "/api", view, read, onProblem: (problem) => problems.push(problem) });
  return { store, asked, problems, loader };
}

test("one request has all that came into sight; what is there is not asked for again", async () => {
  const { store, asked, loader } = made();
  loader.hold("charts", numbered("a", 24));
  assert.deepEqual(asked[0].names, numbered("a", 24));
  loader.hold("charts", numbered("a", 28));
  assert.deepEqual(asked[1].names, numbered("a", 28).slice(24));
  for (const one of asked) one.answer();
  await settled();
  loader.hold("charts", numbered("a", 20));
  assert.equal(asked.length, 2);
  assert.equal(store.of("a/27").length, 1);
});

test("a request is given up when all of its names have left, and what passed by is never asked for", async () => {
  const { store, asked, problems, loader } = made();
  for (let i = 0; i < 10; i += 1) loader.hold("charts", numbered(`screen ${i}`, 16));
  assert.equal(asked.filter(({ signal }) => !signal.aborted).length, 1);
  loader.hold("full", ["screen 9/0"]);
  loader.hold("charts", numbered("last", 16));
  await settled();
  assert.equal(asked.findLast(({ names }) => names[0] === "screen 9/0").signal.aborted, false); // another holds one
  for (const one of asked) one.answer();
  await settled();
  assert.deepEqual(problems.filter(Boolean), []);
  assert.equal(store.of("last/3").length, 1);
  assert.equal(store.of("screen 4/0").length, 0);
});

test("of what was let go the newest stays, the rest is forgotten and read again", async () => {
  const { store, asked, loader } = made();
  for (let i = 0; i < 12; i += 1) {
    loader.hold("charts", numbered(`screen ${i}`, 40));
    asked.at(-1).answer();
    await settled();
  }
  assert.ok(store.series.size <= 280, `${store.series.size} series`);
  const count = asked.length;
  loader.hold("charts", numbered("screen 10", 40));
  assert.equal(asked.length, count);
  loader.hold("charts", numbered("screen 0", 40));
  assert.equal(asked.length, count + 1);
});

test("after a failure nothing is asked for until it is tried again", async () => {
  const { asked, problems, loader } = made();
  loader.hold("charts", ["a"]);
  asked[0].refuse(new Error("busy"));
  await settled();
  loader.hold("charts", ["a", "b"]);
  assert.equal(asked.length, 1);
  assert.equal(problems.at(-1).message, "busy");
  loader.retry();
  assert.deepEqual(asked[1].names, ["a", "b"]);
});
