/** Moments: Unix ns travel as decimal strings and are kept as numbers after an origin, which a double holds exactly enough. */

const LONG_STEPS = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400]; // seconds

export class Clock {
  /**
   * @param {string | bigint | null} [origin] in Unix ns; null: the first moment that is asked for
   * @param {number} [unit] of the numbers, in ns
   */
  constructor(origin = null, unit = 1) {
    this.origin = origin === null ? null : BigInt(origin);
    this.unit = unit;
  }

  /** Return Unix ns (a decimal string) as units after the origin. */
  offset(/** @type {string} */ text) {
    const moment = BigInt(text);
    this.origin ??= moment;
    return Number(moment - this.origin) / this.unit;
  }

  /** Return units after the origin as Unix ns, a decimal string. */
  absolute(/** @type {number} */ offset) {
    return String((this.origin ?? 0n) + BigInt(Math.round(offset * this.unit)));
  }

  /** Return units after the origin as a Date. */
  date(/** @type {number} */ offset) {
    return new Date(Number((this.origin ?? 0n) / 1000000n) + (offset * this.unit) / 1e6);
  }
}

/**
 * Return the smallest of 1, 2, 5 × 10ⁿ that is at least `least`, and at least a ns; whole minutes, hours and days above 30 seconds.
 *
 * @param {number} least
 * @param {number} second how many units it has
 */
export function niceStep(least, second) {
  const seconds = least / second;
  if (seconds > 30) return (LONG_STEPS.find((each) => each >= seconds) ?? Math.ceil(seconds / 86400) * 86400) * second;
  const atLeast = Math.max(least, second / 1e9);
  const power = 10 ** Math.floor(Math.log10(atLeast));
  return ([1, 2, 5].find((factor) => factor * power >= atLeast * 0.999) ?? 10) * power;
}
