/**
 * How lines are smoothed, by the same arithmetic as jobs/telemetry/smoothing.py: it counts points, whatever their distance, and
 * is given every point there is. Where points were left out, the console smooths; nothing here may be asked to.
 */

const FORGOTTEN = 1e-9; // what points further away weigh, at most

/** @typedef {number | null} Value */
/** @type {Record<string, (ys: number[], smoothing: Smoothing) => number[]>} */
const METHODS = { ema: (ys, { strength }) => exponential(ys, strength), gaussian, mean: runningMean };

export const SMOOTHERS = Object.keys(METHODS);

export class Smoothing {
  /**
   * @param {string} kind of SMOOTHERS
   * @param {number} strength from 0 (off) to below 1: the weight of the past, or what stands for so many points
   */
  constructor(kind = SMOOTHERS[0], strength = 0) {
    this.kind = SMOOTHERS.includes(kind) ? kind : SMOOTHERS[0];
    this.strength = strength > 0 && strength < 1 ? strength : 0;
  }

  get isNone() {
    return this.strength === 0;
  }

  /** Points that the mean takes, or that a Gaussian's standard deviation is wide. */
  get points() {
    return Math.max(1, Math.round(1 / (1 - this.strength)));
  }

  /** How the console calls it; "" for none. */
  get text() {
    if (this.isNone) return "";
    return this.kind === "ema" ? String(this.strength) : `${this.kind}:${this.points}`;
  }

  /** What the slider's number says. */
  get amount() {
    return this.isNone || this.kind === "ema" ? this.strength.toFixed(2) : String(this.points);
  }

  /**
   * Return the smoothed values of all points of a series. What is not finite stays as it is and weighs nothing.
   *
   * @param {Value[]} ys
   * @returns {Value[]}
   */
  of(ys) {
    if (this.isNone) return ys;
    /** @type {number[]} */
    const finite = [];
    for (const y of ys) if (y !== null && Number.isFinite(y)) finite.push(y);
    const smoothed = METHODS[this.kind](finite, this);
    let at = 0;
    return Array.from(ys, (y) => (y !== null && Number.isFinite(y) ? smoothed[at++] : y));
  }

  /**
   * Return the smoothed value of a point that follows `before`, the smoothed one of the newest of `n - 1` points; null where
   * this takes more than that.
   *
   * @param {Value} before
   * @param {Value} y
   * @param {number} n
   */
  next(before, y, n) {
    if (this.isNone || y === null || !Number.isFinite(y)) return y;
    if (this.kind !== "ema" || before === null || !Number.isFinite(before)) return null;
    const mass = (/** @type {number} */ count) => 1 - this.strength ** count;
    return (this.strength * before * mass(n - 1) + (1 - this.strength) * y) / mass(n);
  }
}

/** Debiased: the start is not pulled to zero. Source: Adam's bias correction. */
function exponential(/** @type {number[]} */ ys, /** @type {number} */ weight) {
  let sum = 0;
  let mass = 0;
  return ys.map((y) => {
    sum = weight * sum + (1 - weight) * y;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

/** The mean of the newest points. */
function runningMean(/** @type {number[]} */ ys, /** @type {Smoothing} */ { points }) {
  return ys.map((_y, i) => {
    const first = Math.max(0, i - points + 1);
    let sum = 0;
    for (let k = first; k <= i; k += 1) sum += ys[k];
    return sum / (i - first + 1);
  });
}

/** The mean of the points around, weighted by exp(-d² / 2σ²); at the ends of those there are. */
function gaussian(/** @type {number[]} */ ys, /** @type {Smoothing} */ { points: sigma }) {
  const reach = Math.ceil(sigma * Math.sqrt(-2 * Math.log(FORGOTTEN)));
  const weights = Array.from({ length: reach + 1 }, (_none, d) => Math.exp(-0.5 * (d / sigma) ** 2));
  return ys.map((_y, i) => {
    let sum = 0;
    let mass = 0;
    for (let k = Math.max(0, i - reach); k <= Math.min(ys.length - 1, i + reach); k += 1) {
      const weight = weights[Math.abs(k - i)];
      sum += weight * ys[k];
      mass += weight;
    }
    return sum / mass;
  });
}
