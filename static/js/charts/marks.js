/** What stands on and under the lines of a chart: limits, checkpoints, holes, and values that are not finite or not in sight. */

import { color, faded } from "./colors.js";
import { wordsOf } from "./outliers.js";

/** @import uPlot from "uplot" */
/** @import { Clipped } from "./outliers.js" */
/** @import { Mark, Plot, Shown } from "./plot" */

/**
 * Draw the band in which the metric usually is, behind all else.
 *
 * @param {uPlot} u
 * @param {Plot["band"]} band
 * @returns {boolean} whether there is one in sight, as all of these functions that the legend has a word for
 */
export function drawBand(u, band) {
  if (!band) return false;
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const inside = (/** @type {number} */ y) => Math.min(Math.max(y, top), top + height);
  const edges = band.map((value) => u.valToPos(value, "y", true)).map((y) => (Number.isFinite(y) ? y : top + height));
  const [low, high] = edges.map(inside);
  ctx.save();
  ctx.fillStyle = color("--band");
  ctx.fillRect(left, high, width, low - high);
  ctx.strokeStyle = color("--band-edge");
  ctx.lineWidth = devicePixelRatio;
  for (const y of edges) {
    if (!(y > top && y < top + height)) continue;
    ctx.beginPath();
    ctx.moveTo(left, y);
    ctx.lineTo(left + width, y);
    ctx.stroke();
  }
  ctx.restore();
  return low > high;
}

/**
 * Draw the dashed line of each hard limit with its number, behind the data.
 *
 * @param {uPlot} u
 * @param {NonNullable<Plot["limits"]>} limits
 * @returns {boolean}
 */
export function drawLimits(u, limits) {
  let isDrawn = false;
  for (const { value, label } of limits) {
    const { ctx } = u;
    const ratio = devicePixelRatio;
    const y = u.valToPos(value, "y", true);
    const { left, top, width, height } = u.bbox;
    if (!(y >= top && y <= top + height)) continue;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("--limit");
    ctx.lineWidth = 1.5 * ratio;
    ctx.setLineDash([5 * ratio, 4 * ratio]);
    ctx.beginPath();
    ctx.moveTo(left, y);
    ctx.lineTo(left + width, y);
    ctx.stroke();
    ctx.font = `${10.5 * ratio}px Inter, system-ui, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = y - top > 14 * ratio ? "bottom" : "top";
    ctx.fillText(label, left + width - 3 * ratio, y + (ctx.textBaseline === "bottom" ? -2 : 3) * ratio);
    ctx.restore();
    isDrawn = true;
  }
  return isDrawn;
}

/**
 * Draw a square and a thin line at each checkpoint's step, a triangle on the x axis where it was resumed, a diamond there with a line
 * where knobs changed, a triangle at the top where an alert opened, a flag where people wrote a note, and bars along the top over captured
 * steps and over those that alarms and what is good hold for. Where several runs share a chart a mark has its run's color, and a
 * checkpoint no line: there would be too many.
 *
 * @param {uPlot} u
 * @param {Mark[]} marks
 */
export function drawMarks(u, marks) {
  const { ctx } = u;
  const ratio = devicePixelRatio;
  const { left, top, width, height } = u.bbox;
  ctx.save();
  for (const { x, to, type, color: own } of marks) {
    const at = u.valToPos(x, "x", true);
    if (type === "alarm" || type === "good") {
      const begin = Math.max(at - ratio, left);
      const end = Math.min(Math.max(u.valToPos(to ?? x, "x", true), at + 2 * ratio), left + width);
      ctx.fillStyle = color(own ?? (type === "good" ? "--state-finished" : "--state-warning"));
      if (end > begin) ctx.fillRect(begin, top + (type === "good" ? 8 : 4) * ratio, end - begin, 3 * ratio);
      continue;
    }
    if (type === "capture") {
      const begin = Math.max(at - 3 * ratio, left);
      const end = Math.min(u.valToPos(to ?? x, "x", true) + 3 * ratio, left + width);
      ctx.fillStyle = color(own ?? "--accent-text");
      if (end > begin) ctx.fillRect(begin, top, end - begin, 3 * ratio);
      continue;
    }
    if (!(at >= left && at <= left + width)) continue;
    if (type === "change") {
      ctx.fillStyle = ctx.strokeStyle = color(own ?? "--accent-text");
      ctx.lineWidth = ratio;
      ctx.setLineDash([4 * ratio, 2 * ratio]);
      ctx.beginPath();
      ctx.moveTo(at, top);
      ctx.lineTo(at, top + height);
      ctx.stroke();
      ctx.beginPath(); // a diamond on the axis
      ctx.moveTo(at, top + height - 9 * ratio);
      ctx.lineTo(at + 4.5 * ratio, top + height - 4.5 * ratio);
      ctx.lineTo(at, top + height);
      ctx.lineTo(at - 4.5 * ratio, top + height - 4.5 * ratio);
      ctx.fill();
      continue;
    }
    if (type === "alert" || type === "note") {
      ctx.fillStyle = ctx.strokeStyle = color(own ?? (type === "alert" ? "--state-failed" : "--text-2"));
      ctx.lineWidth = ratio;
      ctx.setLineDash([ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(at, top);
      ctx.lineTo(at, top + height);
      ctx.stroke();
      ctx.beginPath();
      if (type === "alert") {
        ctx.moveTo(at, top + 12 * ratio);
        ctx.lineTo(at + 5 * ratio, top + 20 * ratio);
        ctx.lineTo(at - 5 * ratio, top + 20 * ratio);
      } else {
        ctx.moveTo(at, top + 12 * ratio);
        ctx.lineTo(at + 9 * ratio, top + 16 * ratio);
        ctx.lineTo(at, top + 20 * ratio);
      }
      ctx.fill();
      continue;
    }
    if (type === "resume") {
      ctx.fillStyle = color(own ?? "--text-2");
      ctx.beginPath();
      ctx.moveTo(at, top + height - 7 * ratio);
      ctx.lineTo(at + 5 * ratio, top + height);
      ctx.lineTo(at - 5 * ratio, top + height);
      ctx.fill();
      continue;
    }
    if (!own) {
      ctx.strokeStyle = color("--line-2");
      ctx.lineWidth = ratio;
      ctx.setLineDash([2 * ratio, 2 * ratio]);
      ctx.beginPath();
      ctx.moveTo(at, top);
      ctx.lineTo(at, top + height);
      ctx.stroke();
    }
    ctx.fillStyle = color(own ?? "--text-3");
    ctx.fillRect(at - 3 * ratio, top, 6 * ratio, 6 * ratio);
  }
  ctx.restore();
}

/**
 * Draw a cross where a value was NaN or infinite: at the top, or at the bottom for -Infinity.
 *
 * @param {uPlot} u
 * @param {Shown["odd"]} odd
 * @returns {boolean}
 */
export function drawOdd(u, odd) {
  let isDrawn = false;
  const { ctx } = u;
  const ratio = devicePixelRatio;
  const { left, top, width, height } = u.bbox;
  const arm = 3 * ratio;
  ctx.save();
  ctx.strokeStyle = color("--limit");
  ctx.lineWidth = 1.5 * ratio;
  for (const [x, value] of odd) {
    const at = u.valToPos(x, "x", true);
    if (!(at >= left && at <= left + width)) continue;
    const y = value === -Infinity ? top + height - 2 * arm : top + 2 * arm;
    ctx.beginPath();
    ctx.moveTo(at - arm, y - arm);
    ctx.lineTo(at + arm, y + arm);
    ctx.moveTo(at - arm, y + arm);
    ctx.lineTo(at + arm, y - arm);
    ctx.stroke();
    isDrawn = true;
  }
  ctx.restore();
  return isDrawn;
}

/**
 * Draw a dotted line along the x axis over every hole, in the color of its line.
 *
 * @param {uPlot} u
 * @param {Shown} shown
 * @returns {boolean}
 */
export function drawGaps(u, { lines }) {
  let isDrawn = false;
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio;
  const bottom = bbox.top + bbox.height - 1.5 * ratio;
  ctx.save();
  ctx.lineWidth = 3 * ratio;
  ctx.setLineDash([2 * ratio, 3 * ratio]);
  for (const { color: ink, column } of lines) {
    ctx.strokeStyle = color(ink);
    for (const i of column.breaks) {
      const [from, to] = [column.x[i - 1], column.x[i]].map((x) => u.valToPos(x, "x", true));
      const left = Math.max(from, bbox.left);
      const right = Math.min(to, bbox.left + bbox.width);
      if (right <= left) continue;
      ctx.beginPath();
      ctx.moveTo(left, bottom);
      ctx.lineTo(right, bottom);
      ctx.stroke();
      isDrawn = true;
    }
  }
  ctx.restore();
  return isDrawn;
}

/**
 * Draw a triangle at the edge for every point beyond it, and how many there are.
 *
 * @param {uPlot} u
 * @param {Clipped} clipped
 */
export function drawClipped(u, { above, below, isAtLeast }) {
  const { ctx } = u;
  const ratio = devicePixelRatio;
  const { left, top, width, height } = u.bbox;
  ctx.save();
  ctx.fillStyle = color("--text-2");
  ctx.font = `${10.5 * ratio}px Inter, system-ui, sans-serif`;
  ctx.textAlign = "right";
  for (const [xs, isAbove] of /** @type {[number[], boolean][]} */ ([
    [above, true],
    [below, false],
  ])) {
    if (!xs.length) continue;
    const edge = isAbove ? top : top + height;
    const inwards = (isAbove ? 5 : -5) * ratio;
    ctx.beginPath();
    for (const x of xs) {
      const at = u.valToPos(x, "x", true);
      ctx.moveTo(at, edge);
      ctx.lineTo(at + 4 * ratio, edge + inwards);
      ctx.lineTo(at - 4 * ratio, edge + inwards);
    }
    ctx.fill();
    const words = wordsOf(xs.length, { isAbove, isAtLeast });
    const [right, line] = [left + width - 3 * ratio, edge + inwards * 1.4];
    ctx.save();
    ctx.fillStyle = faded(color("--surface"), 0.85); // what is drawn there would be read into the words
    ctx.fillRect(right - ctx.measureText(words).width - 3 * ratio, line, width, (isAbove ? 13 : -13) * ratio);
    ctx.restore();
    ctx.textBaseline = isAbove ? "top" : "bottom";
    ctx.fillText(words, right, line);
  }
  ctx.restore();
}
