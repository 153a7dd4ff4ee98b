/** What lines of several runs say at a place: a line's own words, and for the head of a card the baseline's among all. */

import * as numbers from "../charts/numbers.js";
import { fill, gettext } from "../format.js";

/**
 * Return the value of a column at x, or the newest before it: its mean, and from where to where its points reach. Of the mean of a
 * group it says of how many runs it is, where not of all.
 */
export function said(column, x, unit) {
  const at = placeOf(column.x, x);
  if (at === null) return numbers.metric(null, unit);
  const text = numbers.metric(column.y[at], unit);
  const { counts, most } = column;
  if (counts && counts[at] < most)
    return fill(gettext("%(value)s, of %(n)s of %(most)s runs"), { value: text, n: counts[at], most });
  const [low, high] = [column.low?.[at] ?? null, column.high?.[at] ?? null];
  if (low === null || low === high) return text;
  return `${text} (${numbers.metric(low, unit)} – ${numbers.metric(high, unit)})`;
}

/** Return the base's value at x, null without one, and the range over all lines where they differ; "" where none is there. */
export function among(lines, base, x, unit) {
  const there = lines.map((line) => valueAt(line, x)).filter(Number.isFinite);
  if (!there.length) return "";
  const [low, high] = [Math.min(...there), Math.max(...there)].map((value) => numbers.metric(value, unit));
  const range = low === high ? low : `${low} – ${high}`;
  const own = base ? valueAt(base, x) : null;
  if (own === null) return range;
  const text = numbers.metric(own, unit);
  return text === range ? text : `${text} (${range})`;
}

function valueAt({ column }, x) {
  const at = placeOf(column.x, x);
  return at === null ? null : column.y[at];
}

/** Return where x, or what is newest before it, stands in rising `xs`; null outside of them. */
function placeOf(xs, x) {
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}
