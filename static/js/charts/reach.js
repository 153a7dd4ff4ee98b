/** What the columns of a line reach from and to, and how that is drawn: with which way of the pen, how strongly, where strongest. */

/** @import { Envelope } from "./plot" */

const SPIKE = 4; // times as far from the line as is usual, a column stands out
const BESIDE = 4; // columns on each side that it is held against
const GHOST = 0.26; // opacity of one line's envelope
const FAINTEST = 0.07; // of one of many
const ALONE = 4; // so many lines have it in full

/** Return how opaque the envelope of one of `n` lines is: many together must not hide the lines. */
export const opacity = (/** @type {number} */ n) => (n <= ALONE ? GHOST : Math.max(FAINTEST, (GHOST * ALONE) / n));

/**
 * @typedef {object} Pen what draws, in data
 * @property {(x: number, y: number) => void} moveTo
 * @property {(x: number, y: number) => void} lineTo
 */
/** @typedef {{ x: ArrayLike<number>, low: (number | null)[], high: (number | null)[], breaks: number[] }} Reach what each column holds */

/** Lead a pen through every extreme of every column, from the nearer one of each to the other; it is lifted over holes. */
export function outline(/** @type {Reach} */ { x, low, high, breaks }, /** @type {Pen} */ pen) {
  const starts = new Set(breaks);
  let at = NaN;
  for (let i = 0; i < x.length; i += 1) {
    const [least, most] = [low[i], high[i]];
    if (starts.has(i)) at = NaN;
    if (least === null || most === null) continue;
    const isUp = !(Math.abs(at - least) > Math.abs(at - most));
    if (Number.isNaN(at)) pen.moveTo(x[i], least);
    else pen.lineTo(x[i], isUp ? least : most);
    at = isUp ? most : least;
    if (least !== most) pen.lineTo(x[i], at);
  }
}

/**
 * Lead a pen around the bands between the least and the most of all columns, each up to the next hole: there along what is most,
 * back along what is least.
 */
export function around(/** @type {Reach} */ columns, /** @type {Pen} */ pen) {
  const edges = [0, ...columns.breaks, columns.x.length];
  for (let k = 1; k < edges.length; k += 1) band(columns, edges[k - 1], edges[k], pen);
}

/** @param {Omit<Reach, "breaks">} columns @param {number} first @param {number} end @param {Pen} pen */
function band({ x, low, high }, first, end, pen) {
  let isDown = false;
  const mark = (/** @type {number} */ left, /** @type {number | null} */ y) => {
    if (y === null) return;
    if (isDown) pen.lineTo(left, y);
    else pen.moveTo(left, y);
    isDown = true;
  };
  for (let i = first; i < end; i += 1) mark(x[i], high[i]);
  for (let i = end - 1; i >= first; i -= 1) mark(x[i], low[i]);
}

/** Return true if most columns hold more than one value, so that they are a band rather than a line. */
export const isWide = (/** @type {{ low: (number | null)[], high: (number | null)[] }} */ { low, high }) =>
  low.filter((least, i) => least !== high[i]).length * 2 > low.length;

/**
 * Return the places of the columns that reach much further from the line than is usual, and from the columns beside them: these
 * are drawn strongly. A smoothed line that still holds a spike is far from what came after it, which is none.
 *
 * @param {{ line: (number | null)[], low: (number | null)[], high: (number | null)[] }} columns
 */
export function spikes({ line, low, high }) {
  const reach = line.map((y, i) => {
    const [least, most] = [low[i], high[i]];
    return y === null || least === null || most === null ? 0 : Math.max(most - y, y - least, 0);
  });
  const sorted = Float64Array.from(reach.filter((_far, i) => low[i] !== null)).sort(); // as numbers, and quicker so
  const usual = sorted[sorted.length >> 1] ?? 0;
  const isOut = (/** @type {number} */ i) => {
    const about = middle(low, high, i);
    return Math.max((high[i] ?? about) - about, about - (low[i] ?? about)) > SPIKE * usual;
  };
  return reach.flatMap((far, i) => (far > SPIKE * usual && far > 0 && isOut(i) ? [i] : []));
}

/** Return the median of what the columns around one hold, itself among them. */
function middle(/** @type {(number | null)[]} */ low, /** @type {(number | null)[]} */ high, /** @type {number} */ at) {
  /** @type {number[]} */
  const held = [];
  for (let i = Math.max(0, at - BESIDE); i <= at + BESIDE && i < low.length; i += 1) {
    const [least, most] = [low[i], high[i]];
    if (least !== null && most !== null) held.push((least + most) / 2);
  }
  return held.sort((a, b) => a - b)[held.length >> 1] ?? 0;
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
