/**
 * What of a series lies around its line: the least and the most of every point in each column of the screen. It is drawn under the
 * line whatever the line shows, so that smoothing hides no spike.
 */

import { color, faded } from "./colors.js";

/** @import uPlot from "uplot" */
/** @import { Envelope } from "./plot" */

const SPIKE = 4; // times as far from the line as is usual, a column stands out
const GHOST = 0.26; // opacity of one line's envelope
const FAINTEST = 0.07; // of one of many
const ALONE = 4; // so many lines have it in full

/** Return how opaque the envelope of one of `n` lines is: many together must not hide the lines. */
export const opacity = (/** @type {number} */ n) => (n <= ALONE ? GHOST : Math.max(FAINTEST, (GHOST * ALONE) / n));

/**
 * Return the way of a pen through every extreme of every column, in data: from the nearer one of each to the other.
 *
 * @param {{ x: ArrayLike<number>, low: (number | null)[], high: (number | null)[] }} columns
 * @returns {[x: number, y: number][]}
 */
export function outline({ x, low, high }) {
  /** @type {[number, number][]} */
  const points = [];
  for (let i = 0; i < x.length; i += 1) {
    const [least, most] = [low[i], high[i]];
    if (least === null || most === null) continue;
    const at = points.length ? points[points.length - 1][1] : least;
    const isUp = Math.abs(at - least) <= Math.abs(at - most);
    points.push([x[i], isUp ? least : most]);
    if (least !== most) points.push([x[i], isUp ? most : least]);
  }
  return points;
}

/**
 * Return the edge of the band between the least and the most of all columns: there along what is most, back along what is least.
 *
 * @param {{ x: ArrayLike<number>, low: (number | null)[], high: (number | null)[] }} columns
 * @returns {[x: number, y: number][]}
 */
export function around({ x, low, high }) {
  const edge = (/** @type {(number | null)[]} */ ys) =>
    ys.flatMap((y, i) => (y === null ? [] : [/** @type {[number, number]} */ ([x[i], y])]));
  return [...edge(high), ...edge(low).reverse()];
}

/** Return true if most columns hold more than one value, so that they are a band rather than a line. */
export const isWide = (/** @type {{ low: (number | null)[], high: (number | null)[] }} */ { low, high }) =>
  low.filter((least, i) => least !== high[i]).length * 2 > low.length;

/**
 * Return the places of the columns that reach much further from the line than is usual: these are drawn strongly.
 *
 * @param {{ line: (number | null)[], low: (number | null)[], high: (number | null)[] }} columns
 */
export function spikes({ line, low, high }) {
  const reach = line.map((y, i) => {
    const [least, most] = [low[i], high[i]];
    return y === null || least === null || most === null ? 0 : Math.max(most - y, y - least, 0);
  });
  const sorted = reach.filter((_far, i) => low[i] !== null).sort((a, b) => a - b);
  const usual = sorted[sorted.length >> 1] ?? 0;
  return reach.flatMap((far, i) => (far > SPIKE * usual && far > 0 ? [i] : []));
}

/**
 * Return the least and the most of all envelopes between two x, on top of `low` and `high`; null where there is nothing.
 *
 * @param {Envelope[]} envelopes
 * @param {{ min?: number | null, max?: number | null }} scale
 * @param {number | null} low
 * @param {number | null} high
 * @returns {[number | null, number | null]}
 */
export function reached(envelopes, scale, low, high) {
  const [min, max] = [scale.min ?? -Infinity, scale.max ?? Infinity]; // null before there is one
  let [least, most] = [low, high];
  for (const own of envelopes) {
    for (let i = 0; i < own.x.length; i += 1) {
      const [under, over] = [own.low[i], own.high[i]];
      if (under === null || over === null || own.x[i] < min || own.x[i] > max) continue;
      if (least === null || under < least) least = under;
      if (most === null || over > most) most = over;
    }
  }
  return [least, most];
}

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
  const place = (/** @type {number} */ y) => u.valToPos(isLog ? Math.max(y, u.scales.y.min ?? y) : y, "y", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.lineWidth = devicePixelRatio;
  for (const own of envelopes) {
    ctx.strokeStyle = ctx.fillStyle = faded(color(own.color), alpha);
    ctx.beginPath();
    const isBand = isWide(own);
    for (const [i, [x, y]] of (isBand ? around(own) : outline(own)).entries()) {
      const [left, top] = [u.valToPos(x, "x", true), place(y)];
      if (i) ctx.lineTo(left, top);
      else ctx.moveTo(left, top);
    }
    if (isBand) ctx.fill();
    else ctx.stroke();
    ctx.strokeStyle = faded(color(own.color), 0.85);
    ctx.beginPath();
    for (const i of spikes(own)) {
      const left = u.valToPos(own.x[i], "x", true);
      const [top, bottom] = [place(own.high[i] ?? 0), place(own.low[i] ?? 0)];
      const from = place(own.line[i] ?? 0);
      ctx.moveTo(left, Math.min(top, from));
      ctx.lineTo(left, Math.max(bottom, from));
    }
    ctx.stroke();
  }
  ctx.restore();
}
