/**
 * What of a series lies around its line: the least and the most of every point in each column of the screen. It is drawn under the
 * line whatever the line shows, so that smoothing hides no spike.
 */

import { color, faded } from "./colors.js";
import { around, isWide, opacity, outline, spikes } from "./reach.js";

/** @import uPlot from "uplot" */
/** @import { Envelope } from "./plot" */

/**
 * Draw the envelopes of all lines, below the lines.
 *
 * @param {uPlot} u
 * @param {Envelope[]} envelopes
 */
export function drawEnvelopes(u, envelopes) {
  if (!envelopes.length) return;
  const { ctx, bbox } = u;
  const alpha = opacity(envelopes.length);
  const isLog = u.scales.y.distr === 3;
  const [left0, left1] = [0, 1].map((x) => u.valToPos(x, "x", true)); // the x axis is linear
  // Whole pixels: without a GPU, a band between fractions of them takes four to eight times as long to fill.
  const across = (/** @type {number} */ x) => Math.round(left0 + x * (left1 - left0));
  const place = (/** @type {number} */ y) =>
    Math.round(u.valToPos(isLog ? Math.max(y, u.scales.y.min ?? y) : y, "y", true));
  const pen = {
    moveTo: (/** @type {number} */ x, /** @type {number} */ y) => ctx.moveTo(across(x), place(y)),
    lineTo: (/** @type {number} */ x, /** @type {number} */ y) => ctx.lineTo(across(x), place(y)),
  };
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.lineWidth = devicePixelRatio;
  for (const own of envelopes) {
    ctx.strokeStyle = ctx.fillStyle = faded(color(own.color), alpha);
    ctx.beginPath();
    const isBand = isWide(own);
    if (isBand) around(own, pen);
    else outline(own, pen);
    if (isBand) ctx.fill();
    else ctx.stroke();
    ctx.strokeStyle = faded(color(own.color), 0.85);
    ctx.beginPath();
    for (const i of spikes(own)) {
      const left = across(own.x[i]);
      const [top, bottom] = [place(own.high[i] ?? 0), place(own.low[i] ?? 0)];
      const from = place(own.line[i] ?? 0);
      ctx.moveTo(left, Math.min(top, from));
      ctx.lineTo(left, Math.max(bottom, from));
    }
    ctx.stroke();
  }
  ctx.restore();
}
