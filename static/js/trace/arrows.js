/** Arrows of the chosen event: launch to kernel, forward to backward, a collective across ranks. */

import { color } from "../charts/colors.js";

/** @import { Stretch } from "../timeline/window.js" */
/** @import { Layout } from "./layout.js" */
/** @typedef {{ laneKey: string, depth: number, begin: number, end: number }} Place of an event, in ns after the trace's origin */
/** @typedef {{ kind: string, source: Place, target: Place }} Arrow */

const TOKENS = { launch: "--trace-kernel", backward: "--trace-operator", collective: "--trace-communication" };
const HEAD = 5; // pixels

/**
 * Draw arrows over the lanes: from the end of one event, or its begin where the other comes earlier, to the begin of the other.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Arrow[]} arrows
 * @param {{ layout: Layout, view: Stretch, xOf: (time: number) => number, yOf: (height: number) => number, left: number, top: number, width: number, height: number }} place
 */
export function drawArrows(context, arrows, { layout, view, xOf, yOf, left, top, width, height }) {
  if (!arrows.length) return;
  context.save();
  context.beginPath();
  context.rect(left, top, width - left, height - top);
  context.clip();
  for (const { kind, source, target } of arrows) {
    const [from, to] = [layout.middleOf(source), layout.middleOf(target)];
    if (from === null || to === null) continue;
    const leaves = Math.min(source.end, Math.max(target.begin, source.begin));
    if (Math.max(leaves, target.begin) < view.from || Math.min(leaves, target.begin) > view.to) continue;
    draw(context, { x: xOf(leaves), y: yOf(from) }, { x: xOf(target.begin), y: yOf(to) }, tokenOf(kind));
  }
  context.restore();
}

const tokenOf = (/** @type {string} */ kind) => TOKENS[/** @type {keyof typeof TOKENS} */ (kind)] ?? "--text";

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{ x: number, y: number }} from
 * @param {{ x: number, y: number }} to
 * @param {string} token
 */
function draw(context, from, to, token) {
  const bend = Math.max(Math.min(Math.abs(to.x - from.x) / 2, 120), 14);
  const line = () => {
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.bezierCurveTo(from.x + bend, from.y, to.x - bend, to.y, to.x - 1, to.y);
    context.stroke();
  };
  context.lineCap = "round";
  context.strokeStyle = color("--surface"); // a rim, so that it stands out on bars
  context.lineWidth = 3.5;
  line();
  context.strokeStyle = context.fillStyle = color("--text");
  context.lineWidth = 2.2;
  line();
  context.strokeStyle = context.fillStyle = color(token);
  context.lineWidth = 1.4;
  line();
  context.beginPath();
  context.moveTo(to.x + 1, to.y);
  context.lineTo(to.x - HEAD, to.y - HEAD * 0.7);
  context.lineTo(to.x - HEAD, to.y + HEAD * 0.7);
  context.closePath();
  context.fill();
}
