import assert from "node:assert/strict";
import { test } from "node:test";
import { csvOf, svgOf } from "../../../static/js/charts/picture.js";

const line = (label, x, y, smooth = y) => ({
  label,
  color: "--run-0",
  look: "line",
  column: { x, y, smooth, breaks: [] },
});
const shownOf = (...lines) => ({
  data: [[1, 2, 3], ...lines.map(({ column }) => [1, 2, 3].map((x) => column.y[column.x.indexOf(x)]))],
  lines,
  drawn: lines,
  envelopes: [],
  odd: [],
});

test("a CSV has what was measured and what was smoothed; what is missing is empty", () => {
  const shown = shownOf(
    line("Reward", [1, 2, 3], [1, Number.NaN, 4], [1, Number.NaN, 2.5]),
    line('=a "b", c', [2], [7]),
  );
  assert.equal(
    csvOf(shown, { xName: "step", smoothing: "mean:2" }),
    `step,Reward,Reward (smoothed mean:2),"'=a ""b"", c"\n1,1,1,\n2,NaN,NaN,7\n3,4,2.5,\n`,
  );
});

test("a CSV of columns of many points has their least and most, so that no spike is lost", () => {
  const one = line("Loss", [1, 2], [4, 5]);
  Object.assign(one.column, { low: [1, 5], high: [90, 5], n: 2, of: 80 });
  const shown = { ...shownOf(one), data: [[1, 2]] };
  assert.equal(
    csvOf(shown, { xName: "tokens", smoothing: "" }),
    "tokens,Loss,Loss (least),Loss (most)\n1,4,1,90\n2,5,5,5\n",
  );
});

test("a line in an SVG ends at a hole, and at what is no number", () => {
  const one = line("Loss", [1, 2, 3], [0, 5, 10]);
  one.column.breaks = [1];
  const range = { min: 0, max: 10 };
  const look = { title: "", xName: "step", width: 264, height: 166, x: { min: 1, max: 3 }, y: range, isLog: false };
  const svg = svgOf(shownOf(one), { ...look, color: () => "#123456", xTick: String, yTick: String });
  assert.match(svg, /d="M64\.0,134\.0M152\.0,84\.0L240\.0,34\.0"/);
});

test("an SVG has every line within its frame, and no text of a metric is markup", () => {
  const svg = svgOf(shownOf(line("<b>", [1, 2, 3], [0, 5, 10])), {
    title: "a & <i>",
    xName: "step",
    width: 264,
    height: 166,
    x: { min: 1, max: 3 },
    y: { min: 0, max: 10 },
    isLog: false,
    color: () => "#123456",
    xTick: String,
    yTick: String,
  });
  assert.match(svg, /d="M64\.0,134\.0L152\.0,84\.0L240\.0,34\.0"/);
  assert.match(svg, /a &amp; &lt;i&gt;/);
  assert.doesNotMatch(svg, /<b>|<i>/);
});

test("an SVG has what stands on a chart: the usual range, the limit, marks with their words, what is not finite", () => {
  const shown = { ...shownOf(line("Loss", [1, 2, 3], [0, 5, 10])), odd: [[2, Number.NaN]] };
  const inks = [];
  const svg = svgOf(shown, {
    title: "Loss",
    xName: "step",
    width: 264,
    height: 166,
    x: { min: 1, max: 3 },
    y: { min: 0, max: 10 },
    isLog: false,
    band: [2, 4],
    limits: [{ value: 8, label: "limit 8" }],
    marks: [
      { x: 1, type: "checkpoint", text: "checkpoint 1" },
      { x: 1.5, to: 2, type: "capture", text: "a <capture>" },
      { x: 2, type: "note" },
      { x: 9, type: "alert" }, // not in sight
    ],
    color: (name) => {
      inks.push(name);
      return "#123456";
    },
    xTick: String,
    yTick: String,
  });

  assert.match(svg, /<rect x="64\.0" y="94\.0" width="176\.0" height="20\.0"/); // the band, from 2 to 4
  assert.match(svg, /M64\.0 54\.0H240\.0.*>limit 8</);
  assert.deepEqual(
    [...svg.matchAll(/data-mark="(\w+)"/g)].map(([, type]) => type),
    ["checkpoint", "capture", "note"],
  );
  assert.match(svg, /<title>a &lt;capture&gt;<\/title>/);
  assert.match(svg, /M149\.0 37\.0l6 6m-6 0l6 -6/); // the cross of step 2
  for (const ink of ["--band", "--limit", "--accent-text", "--text-2", "--text-3"]) assert.ok(inks.includes(ink), ink);
});
