/** X axes of charts: how their numbers are written, and how narrow a zoom may be. */

import { fill, gettext } from "../format.js";
import * as numbers from "./numbers.js";

/**
 * @typedef {object} Axis
 * @property {number} smallest zoom
 * @property {boolean} [isClock] x is Unix time in seconds
 * @property {number[]} [apart] how far from each other numbers may stand, where not at round decimal ones
 * @property {((x: number) => string) | null} tick null: as the chart library writes numbers
 * @property {(x: number) => string} word what stands under the crosshair
 * @property {(runs: string) => string} missing what is said of runs that have not measured it
 */

const short = (/** @type {number} */ x) => (Math.abs(x) >= 1e4 ? numbers.short(x).replace(".0", "") : String(x));
const counted = (/** @type {number} */ x) => (x === 0 ? "0" : numbers.short(Math.round(x)).replace(".0", ""));
const nothing = () => "";

/** @type {Axis} */
const step = { smallest: 1, tick: short, word: (x) => String(x), missing: nothing };

/** @type {Axis} */
const tokens = {
  smallest: 1,
  tick: counted,
  word: (x) => fill(gettext("%(count)s tokens"), { count: counted(x) }),
  missing: (runs) => fill(gettext("No tokens were recorded by %(runs)s."), { runs }),
};

/** @type {Axis} */
const samples = {
  smallest: 1,
  tick: counted,
  word: (x) => fill(gettext("%(count)s samples"), { count: counted(x) }),
  missing: (runs) => fill(gettext("No samples were recorded by %(runs)s."), { runs }),
};

/** @type {Axis} */
const hours = {
  smallest: 1e-6,
  tick: (x) => (x === 0 ? "0" : `${numbers.tick(x, "")} h`),
  word: (x) => fill(gettext("%(count)s GPU hours"), { count: numbers.number(x) }),
  missing: (runs) => fill(gettext("No GPU hours are known of %(runs)s: it takes GPUs and step times."), { runs }),
};

/** @type {Axis} */
const clock = {
  smallest: 0.1,
  isClock: true,
  tick: null,
  word: nothing,
  missing: (runs) => fill(gettext("No moments of steps were recorded by %(runs)s."), { runs }),
};

const SHORT_STRETCHES = [-2, -1, 0].flatMap((power) => [1, 2, 5].map((factor) => factor * 10 ** power));
const LONG_STRETCHES = [10, 20, 30, 60, 120, 300, 600, 1200, 1800].concat(
  [1, 2, 4, 6, 12, 24, 48, 120, 240, 600, 1200, 2400].map((hours) => 3600 * hours),
);

/** @type {Axis} */
const training = {
  smallest: 0.1,
  apart: [...SHORT_STRETCHES, ...LONG_STRETCHES],
  tick: (x) => (x === 0 ? "0" : x < 1 || !Number.isInteger(x) ? numbers.duration(x) : numbers.exactly(x)),
  word: numbers.duration,
  missing: (runs) => fill(gettext("No step times were recorded by %(runs)s."), { runs }),
};

/** Of one run: time is that of the clock. */
export const RUN_AXES = /** @type {Record<string, Axis>} */ ({ step, time: clock, tokens, samples, gpu_hours: hours });
/** Of several runs: time is that spent training. */
export const COMPARED_AXES = /** @type {Record<string, Axis>} */ ({ ...RUN_AXES, time: training });
