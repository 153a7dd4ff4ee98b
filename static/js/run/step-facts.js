/** What is known of one step: when it was, how long its phases took, what the machines did meanwhile. */

/** @import { Lanes } from "../timeline/lanes.js" */

const SETTLED_MS = 500; // a line may be dated so much before what was written just before it: they come in batches

/** @typedef {{ at: string, role: string, rank: number, text: string }} LogLine */
/** @typedef {{ kind: string, name: string, role: string, rank: number, x: (number | string)[], y: (number | string | null)[] }} Reading a series of a window */

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
 * Return where to look for the lines of a step, in units of the lanes' clock: a driver tells of a step when its last span
 * is over, so that its line stands between its end and that of the next one.
 *
 * @param {Lanes} lanes
 * @param {number} step
 * @param {{ from: number, to: number }} when
 * @param {number} slack seconds after the end of a step in which its own line comes
 */
export function logWindow(lanes, step, { from, to }, slack) {
  const before = whenWas(lanes, step - 1)?.to ?? from;
  const next = whenWas(lanes, step + 1)?.to ?? Infinity;
  return { from: Math.min(before, from), to, until: Math.min(to + slack, Math.max(next, to)) };
}

/**
 * Return the lines of a step among those around it: behind the driver's line of the step before, up to that of its own;
 * where a driver writes none, those from the end of the step before to its own end.
 *
 * @template {LogLine} L
 * @param {L[]} lines in the order they came
 * @param {number} step
 * @param {{ from: number, to: number }} window Unix ms
 * @returns {L[]}
 */
export function linesOf(lines, step, { from, to }) {
  const [before, own, after] = [step - 1, step, step + 1].map((one) => lines.map((line) => tellsOf(line, one)));
  const next = after.indexOf(true);
  const known = next < 0 ? lines : lines.slice(0, next);
  const told = own.lastIndexOf(true, known.length - 1);
  const begin = told < 0 ? before.lastIndexOf(true) : before.lastIndexOf(true, told);
  const first =
    begin < 0 ? known.findIndex(({ at }) => Date.parse(at) >= from - (told < 0 ? 0 : SETTLED_MS)) : begin + 1;
  const last = known.findLastIndex(({ at }) => Date.parse(at) <= to);
  return first < 0 ? [] : known.slice(first, Math.max(told, last) + 1);
}

/** Whether the driver tells of this step in a line, as in "step 3/60", "step:3 -" or "{'step': 3}". */
function tellsOf(/** @type {LogLine} */ { role, text }, /** @type {number} */ step) {
  return role === "driver" && new RegExp(`(?:\\b|_)step\\W{0,3}${step}\\b`, "i").test(text);
}

/**
 * Return of each reading of machines what came last before a stretch and first after it, and when: what comes nearest
 * where nothing was read within it.
 *
 * @param {Reading[]} series
 * @param {{ from: bigint, to: bigint }} stretch Unix ns
 */
export function nearestOf(series, { from, to }) {
  /** @type {Set<bigint>} */
  const times = new Set();
  const near = series.map((one) => {
    const at = one.x.map(BigInt);
    const around = [at.findLastIndex((time) => time < from), at.findIndex((time) => time > to)].filter((i) => i >= 0);
    for (const i of around) times.add(at[i]);
    return { ...one, x: around.map((i) => one.x[i]), y: around.map((i) => one.y[i]) };
  });
  return { series: near, times: [...times].sort((a, b) => (a < b ? -1 : 1)) };
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
