/** What the head of a chart says: the value under the crosshair, or the latest one. */

import * as numbers from "./numbers.js";

/** @import { DrawnLine, Plot, Shown } from "./plot" */

/**
 * Return the values of the lines that are shown, at an index of x or, with null, the latest.
 *
 * @param {Shown} shown
 * @param {number | null} index
 * @param {{ plot: Plot, hidden: Set<string>, word: (x: number) => string }} look `word` writes x, which stands before the values
 */
export function readingOf(shown, index, { plot, hidden, word }) {
  const lines = shown.lines.filter((line) => !hidden.has(line.id));
  const isUnder = index !== null && lines.length > 0;
  const at = isUnder ? shown.data[0][index] : null;
  const isSpread = plot.lines.length === 1 && lines.length > 1;
  let text = isSpread ? spreadOf(lines, at, plot) : listOf(lines, at, plot);
  if (plot.stacked && lines.length) text = numbers.metric(totalOf(shown, isUnder ? index : null), plot.unit);
  const place = at === null ? "" : word(at);
  return place ? `${place}: ${text}` : text;
}

function listOf(/** @type {DrawnLine[]} */ lines, /** @type {number | null} */ x, /** @type {Plot} */ plot) {
  const texts = lines.map((line) => wordOf(line, x, plot)).filter((text) => text !== "");
  return texts.slice(0, 3).join(" · ") || "—";
}

/** Return the smallest and largest value of many lanes. */
function spreadOf(/** @type {DrawnLine[]} */ lines, /** @type {number | null} */ x, /** @type {Plot} */ plot) {
  const values = lines
    .map(({ column }) => (x === null ? column.latest : column.y[column.x.indexOf(x)]))
    .flatMap((value) => (value !== null && Number.isFinite(value) ? [value] : []));
  if (!values.length) return "—";
  const [low, high] = [Math.min(...values), Math.max(...values)].map((value) => numbers.metric(value, plot.unit));
  return low === high ? low : `${low} – ${high}`;
}

function wordOf(/** @type {DrawnLine} */ line, /** @type {number | null} */ x, /** @type {Plot} */ plot) {
  const { x: xs, y, latest } = line.column;
  if (x === null) return line.isPoints && plot.lines.length > 1 ? "" : numbers.metric(latest, plot.unit);
  const at = xs.indexOf(x);
  return at < 0 ? "" : numbers.metric(y[at], plot.unit);
}

/** The sum of all lines at a place, or at the newest x: phases that the newest step lacks add nothing. */
function totalOf(/** @type {Shown} */ shown, /** @type {number | null} */ index) {
  const top = shown.data[1] ?? [];
  return top[index ?? top.length - 1] ?? null;
}
