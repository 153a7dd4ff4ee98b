/** What is known of one step: when it was, how long its phases took, what the machines did meanwhile. */

/** @import { Lanes } from "../timeline/lanes.js" */

/** @typedef {{ kind: string, name: string, role: string, rank: number, y: (number | string | null)[] }} Reading a series of a window */

/**
 * Return when a step began and ended, in units of the lanes' clock: as its spans say; between spans (of a long run only
 * the longest are read) from the end of the step before to its own, estimated; null before the first span.
 *
 * @param {Lanes} lanes
 * @param {number} step
 * @returns {{ from: number, to: number, isEstimated: boolean } | null}
 */
export function whenWas(lanes, step) {
  const known = lanes.steps.get(step);
  if (known) return { from: known[0], to: known[1], isEstimated: false };
  const steps = [...lanes.steps.keys()].filter((one) => one >= 0);
  const before = Math.max(...steps.filter((one) => one < step));
  const after = Math.min(...steps.filter((one) => one > step));
  if (!Number.isFinite(before) || !Number.isFinite(after)) return null;
  const [, start] = lanes.steps.get(before) ?? [0, 0];
  const [end] = lanes.steps.get(after) ?? [0, 0];
  const each = (end - start) / (after - before - 1);
  return { from: start + each * (step - before - 1), to: start + each * (step - before), isEstimated: true };
}

/** Return the step of the history in which a moment (in units of the lanes' clock) lies, or the last one before it; or null. */
export function stepAt(/** @type {Lanes} */ lanes, /** @type {number} */ moment) {
  /** @type {number | null} */
  let found = null;
  let latest = -Infinity;
  for (const [step, [from]] of lanes.steps) {
    if (from > moment || from <= latest) continue;
    latest = from;
    found = step;
  }
  return found;
}

/**
 * Return the phases of a window, the longest first: seconds and share of all lanes' phases.
 *
 * @param {Lanes} lanes
 * @param {number} from
 * @param {number} to
 * @returns {{ phase: string, seconds: number, share: number }[]}
 */
export function phasesOf(lanes, from, to) {
  const totals = [...lanes.totals(from, to)];
  const all = totals.reduce((sum, [, seconds]) => sum + seconds, 0);
  return totals
    .map(([phase, seconds]) => ({ phase, seconds, share: seconds / all }))
    .sort((a, b) => b.seconds - a.seconds);
}

/**
 * Return for each reading of machines its mean and its most over the window, over all lanes, by name.
 *
 * @param {Reading[]} series
 * @returns {{ name: string, mean: number, most: number, lanes: number }[]}
 */
export function statesOf(series) {
  /** @type {Map<string, { values: number[], lanes: Set<string> }>} */
  const byName = new Map();
  for (const { name, role, rank, y } of series) {
    const values = y.map(Number).filter((value, i) => y[i] !== null && Number.isFinite(value));
    if (!values.length) continue;
    const known = byName.get(name) ?? { values: [], lanes: new Set() };
    known.values.push(...values);
    known.lanes.add(`${role}|${rank}`);
    byName.set(name, known);
  }
  return [...byName].sort().map(([name, { values, lanes }]) => ({
    name,
    mean: values.reduce((sum, value) => sum + value, 0) / values.length,
    most: Math.max(...values),
    lanes: lanes.size,
  }));
}
