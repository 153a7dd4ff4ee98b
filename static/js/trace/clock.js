/** Moments of a trace: Unix ns travel as decimal strings and are kept as ns after the trace's first moment, exact in a double. */

/** @typedef {{ from: number, to: number }} Stretch of time, in ns after the origin */

/** @type {[string, number][]} */
const SCALES = [
  ["ns", 1],
  ["µs", 1e3],
  ["ms", 1e6],
  ["s", 1e9],
];
const MINUTE = 60e9;

export class Clock {
  /** @param {string | number | bigint} origin in Unix ns */
  constructor(origin) {
    this.origin = BigInt(origin);
  }

  /** Return Unix ns (a decimal string) as ns after the origin. */
  offset(/** @type {string} */ text) {
    return Number(BigInt(text) - this.origin);
  }

  /** Return ns after the origin as Unix ns, a decimal string. */
  absolute(/** @type {number} */ offset) {
    return String(this.origin + BigInt(Math.round(offset)));
  }

  /** Return ns after the origin as a Date. */
  date(/** @type {number} */ offset) {
    return new Date(Number(this.origin / 1000000n) + offset / 1e6);
  }
}

const minus = (/** @type {string} */ text) => text.replace("-", "−");

/** Return a length with about three digits: 41.2 ms, 8.10 µs, 1.204 s, 12 min 5 s. */
export function span(/** @type {number} */ ns) {
  if (!Number.isFinite(ns)) return "—";
  const size = Math.abs(ns);
  if (size >= 10 * MINUTE) return minus(`${Math.trunc(ns / MINUTE)} min ${Math.round((size % MINUTE) / 1e9)} s`);
  const [unit, scale] = SCALES.findLast(([, each]) => size >= each) ?? SCALES[0];
  const value = ns / scale;
  const digits = unit === "ns" ? 0 : Math.abs(value) < 10 ? 3 : Math.abs(value) < 100 ? 2 : 1;
  return minus(`${value.toFixed(digits)} ${unit}`);
}

/** Return the smallest of 1, 2, 5 × 10ⁿ ns that is at least `least`; whole minutes above one. */
export function niceStep(/** @type {number} */ least) {
  if (least > 30e9)
    return (
      [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400].map((s) => s * 1e9).find((s) => s >= least) ??
      Math.ceil(least / 86400e9) * 86400e9
    );
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return ([1, 2, 5].find((factor) => factor * power >= least * 0.999) ?? 10) * power;
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
  axisText(at, niceStep(width / 1000));
