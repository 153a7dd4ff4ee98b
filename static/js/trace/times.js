/** Times of a trace as people read them; all are in ns after its origin. */

import { niceStep } from "../timeline/clock.js";

export const SECOND = 1e9;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const APART = 10; // times as long as all that was recorded
/** @type {[string, number][]} */
const SCALES = [
  ["ns", 1],
  ["µs", 1e3],
  ["ms", 1e6],
  ["s", SECOND],
];

const minus = (/** @type {string} */ text) => text.replace("-", "−");

/** Return a length with about three digits: 41.2 ms, 8.10 µs, 1.204 s, 12 min 5 s, 3 h 20 min, 8 d 12 h. */
export function span(/** @type {number} */ ns) {
  if (!Number.isFinite(ns)) return "—";
  const size = Math.abs(ns);
  if (size >= 48 * HOUR) return minus(`${Math.trunc(ns / (24 * HOUR))} d ${Math.trunc((size % (24 * HOUR)) / HOUR)} h`);
  if (size >= 2 * HOUR) return minus(`${Math.trunc(ns / HOUR)} h ${Math.trunc((size % HOUR) / MINUTE)} min`);
  if (size >= 10 * MINUTE) return minus(`${Math.trunc(ns / MINUTE)} min ${Math.round((size % MINUTE) / 1e9)} s`);
  const [unit, scale] = SCALES.findLast(([, each]) => size >= each) ?? SCALES[0];
  const value = ns / scale;
  const digits = unit === "ns" ? 0 : Math.abs(value) < 10 ? 3 : Math.abs(value) < 100 ? 2 : 1;
  return minus(`${value.toFixed(digits)} ${unit}`);
}

/** Return a moment on an axis whose ticks are `step` ns apart: "14.180 s", as fine as the ticks need it. */
export function axisText(/** @type {number} */ at, /** @type {number} */ step) {
  if (at === 0) return "0";
  const [unit, scale] =
    step < 1e3 && Math.abs(at) < 1e6 ? SCALES[1] : step < 1e6 && Math.abs(at) < 1e9 ? SCALES[2] : SCALES[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
  return minus(`${(at / scale).toFixed(digits)} ${unit}`);
}

/** Return a moment as fine as a view of `width` ns shows it. */
export const momentText = (/** @type {number} */ at, /** @type {number} */ width) =>
  axisText(at, niceStep(width / 1000, SECOND));

/**
 * Return the longest time between windows in which none is, in ns: 0 where it is short beside what they hold, or a minute.
 * @param {number[][]} windows
 */
export function emptyBetween(windows) {
  const sorted = [...windows].sort(([a], [b]) => a - b);
  let [through, recorded, most] = [-Infinity, 0, 0];
  for (const [begin, end] of sorted) {
    if (Number.isFinite(through)) most = Math.max(most, begin - through);
    recorded += end - begin;
    through = Math.max(through, end);
  }
  return most > Math.max(MINUTE, APART * recorded) ? most : 0;
}
