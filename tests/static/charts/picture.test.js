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
