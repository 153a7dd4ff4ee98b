/** Values far from all others: what the y axis may leave out, and how that is said at its edge. */

import { fill, ngettext } from "../format.js";

/** @import { Shown } from "./plot" */

const TAIL = 0.02; // so many of the values at each end do not say how far the others reach
const FAR = 1; // times as far away as these reach, a value is an outlier

/**
 * @typedef {object} Clipped what the y axis leaves out: x of each point
 * @property {number[]} above
 * @property {number[]} below
 * @property {boolean} isAtLeast points were left out before: there may be more
 */

/**
 * Return the least and the most of the values that are no outliers; null without any.
 *
 * @param {number[]} values finite
 * @param {boolean} isLog distances are those on a log axis
 * @returns {[number, number] | null}
 */
export function withoutOutliers(values, isLog) {
  const scaled = isLog ? Math.log10 : (/** @type {number} */ value) => value;
  const sorted = Float64Array.from(isLog ? values.filter((value) => value > 0) : values).sort();
  if (!sorted.length) return null;
  const cut = Math.ceil(TAIL * sorted.length); // at least one: of few values, too, one may be far away
  const [low, high] = [cut, sorted.length - 1 - cut].map((at) => sorted[Math.min(Math.max(at, 0), sorted.length - 1)]);
  if (high <= low) return [sorted[0], sorted[sorted.length - 1]];
  const reach = FAR * (scaled(high) - scaled(low));
  const inside = sorted.filter(
    (value) => scaled(value) >= scaled(low) - reach && scaled(value) <= scaled(high) + reach,
  );
  return [inside[0], inside[inside.length - 1]];
}

/**
 * Call `take` with x, the least and the most of every point, or column of points, of the lines that are in sight.
 *
 * @param {Shown} shown
 * @param {{ min?: number | null, max?: number | null }} scale of x
 * @param {Set<string>} hidden
 * @param {(x: number, low: number, high: number) => void} take
 */
export function eachInSight({ lines }, scale, hidden, take) {
  const [min, max] = [scale.min ?? -Infinity, scale.max ?? Infinity];
  for (const { id, column } of lines) {
    if (hidden.has(id)) continue;
    const { x, y, low = y, high = y } = column;
    for (let i = 0; i < x.length; i += 1) {
      const [least, most] = [low[i], high[i]];
      if (x[i] < min || x[i] > max || least === null || most === null) continue;
      if (Number.isFinite(least) && Number.isFinite(most)) take(x[i], least, most);
    }
  }
}

/**
 * Return what the y axis leaves out of the lines in sight.
 *
 * @param {Shown} shown
 * @param {{ x: { min?: number | null, max?: number | null }, y: { min?: number | null, max?: number | null } }} scales
 * @param {Set<string>} hidden
 * @returns {Clipped}
 */
export function clippedBy(shown, { x: scale, y }, hidden) {
  const [min, max] = [y.min ?? -Infinity, y.max ?? Infinity];
  /** @type {number[]} */
  const above = [];
  /** @type {number[]} */
  const below = [];
  eachInSight(shown, scale, hidden, (x, low, high) => {
    if (high > max) above.push(x);
    if (low < min) below.push(x);
  });
  return { above, below, isAtLeast: shown.lines.some(({ column }) => column.of > column.n) };
}

/** Return the words for `n` points beyond one edge. */
export function wordsOf(/** @type {number} */ n, /** @type {{ isAbove: boolean, isAtLeast: boolean }} */ where) {
  const { isAbove, isAtLeast } = where;
  if (isAtLeast) {
    const text = isAbove
      ? ngettext("at least %(n)s point above", "at least %(n)s points above", n)
      : ngettext("at least %(n)s point below", "at least %(n)s points below", n);
    return fill(text, { n });
  }
  const text = isAbove
    ? ngettext("%(n)s point above", "%(n)s points above", n)
    : ngettext("%(n)s point below", "%(n)s points below", n);
  return fill(text, { n });
}
