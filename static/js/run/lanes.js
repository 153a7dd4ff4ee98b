/**
 * The spans of a run, by lane (role, rank) and depth, sorted by start, in seconds since `origin`.
 * Unix nanoseconds do not fit a double, so the origin is a BigInt and everything else is relative to it.
 */

import { EVERYTHING } from "../charts/branches.js";

const ORDER = ["driver", "policy", "critic", "reference", "reward", "vllm", "runner"];
const place = (role) => ORDER.indexOf(role) + 1 || ORDER.length + 1;

/** @typedef {{ role: string, rank: number, rows: Row[] }} Lane rows by depth; one without spans may be missing, never the first */
/** @typedef {Map<number, [start: number, end: number]>} Steps over all lanes, in seconds */

/** Columns of one depth of a lane. */
class Row {
  /** @type {number[]} */
  start = [];
  /** @type {number[]} */
  end = [];
  /** @type {string[]} */
  phase = [];
  /** @type {number[]} */
  step = [];
  /** @type {string[]} */
  name = [];
  /** @type {number[]} */
  attempt = [];
  /** @type {boolean[]} */
  isDead = []; // in a branch that was resumed past

  get length() {
    return this.start.length;
  }

  /** Insert one span where its start belongs; nearly always that is the end. */
  insert(start, end, phase, step, name, attempt, isDead) {
    let at = this.start.length;
    while (at > 0 && this.start[at - 1] > start) at -= 1;
    if (at === this.start.length) {
      this.start.push(start);
      this.end.push(end);
      this.phase.push(phase);
      this.step.push(step);
      this.name.push(name);
      this.attempt.push(attempt);
      this.isDead.push(isDead);
      return;
    }
    this.start.splice(at, 0, start);
    this.end.splice(at, 0, end);
    this.phase.splice(at, 0, phase);
    this.step.splice(at, 0, step);
    this.name.splice(at, 0, name);
    this.attempt.splice(at, 0, attempt);
    this.isDead.splice(at, 0, isDead);
  }

  /** Return the index of the first span that ends after `time` (spans of one depth do not overlap). */
  firstAfter(time) {
    let low = 0;
    let high = this.end.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

/** Every lane of a run. */
export class Lanes {
  /** @type {bigint | null} */
  origin = null;
  /** @type {Map<string, Lane>} */
  byKey = new Map();
  /** @type {Lane[]} */
  sorted = [];
  start = Infinity;
  end = -Infinity;
  numSpans = 0;
  /** @type {Steps} of the history */
  steps = new Map();
  /** @type {Map<number, Steps>} of each attempt's dead branch */
  deadSteps = new Map();

  constructor(branches = EVERYTHING) {
    this.branches = branches;
  }

  /** Judge all spans anew: an attempt has begun, or was resumed past. */
  setBranches(branches) {
    this.branches = branches;
    this.steps = new Map();
    this.deadSteps = new Map();
    for (const { rows } of this.sorted) {
      for (const [depth, row] of rows.entries()) {
        for (let i = 0; i < (row?.length ?? 0); i += 1) {
          row.isDead[i] = branches.isDead(row.attempt[i], row.step[i]);
          if (depth === 0 && row.step[i] >= 0)
            this.#widenStep(row.attempt[i], row.isDead[i], row.step[i], row.start[i], row.end[i]);
        }
      }
    }
  }

  /** Forget all spans. */
  clear() {
    this.byKey = new Map();
    this.sorted = [];
    this.start = Infinity;
    this.end = -Infinity;
    this.numSpans = 0;
    this.steps = new Map();
    this.deadSteps = new Map();
  }

  /** Return Unix ns (a decimal string) as seconds since the origin, which the first call sets. */
  seconds(ns) {
    const value = BigInt(ns);
    this.origin ??= value;
    return Number(value - this.origin) / 1e9;
  }

  /** Return seconds since the origin as Unix ns, a decimal string. */
  nanoseconds(seconds) {
    return String((this.origin ?? 0n) + BigInt(Math.round(seconds * 1e9)));
  }

  /** Return seconds since the origin as a Date. */
  date(seconds) {
    return new Date(Number((this.origin ?? 0n) / 1000000n) + seconds * 1000);
  }

  /**
   * Add the columns of one lane as they travel: phase start duration depth step name. `phases` names indexes, if they are indexes.
   * Only spans that start in [from, before) are taken. `column.attempt` says whose they are.
   */
  add(column, phases = null, { from = -Infinity, before = Infinity } = {}) {
    const lane = this.lane(column.role, column.rank);
    for (let i = 0; i < column.start.length; i += 1) {
      const start = this.seconds(column.start[i]);
      if (start < from || start >= before) continue;
      const end = start + Number(column.duration[i]) / 1e9;
      const phase = phases ? phases[column.phase[i]] : column.phase[i];
      const depth = column.depth?.[i] ?? 0;
      const step = column.step?.[i] ?? -1;
      const attempt = column.attempt ?? 1;
      const isDead = this.branches.isDead(attempt, step);
      lane.rows[depth] ??= new Row();
      lane.rows[depth].insert(start, end, phase, step, column.name?.[i] ?? "", attempt, isDead);
      this.start = Math.min(this.start, start);
      this.end = Math.max(this.end, end);
      this.numSpans += 1;
      if (depth === 0 && step >= 0) this.#widenStep(attempt, isDead, step, start, end);
    }
  }

  /** Return the lane of a role and rank, made if it is new. */
  lane(role, rank) {
    const key = `${role}|${rank}`;
    const known = this.byKey.get(key);
    if (known) return known;
    const lane = { role, rank, rows: [new Row()] };
    this.byKey.set(key, lane);
    this.sorted = [...this.byKey.values()].sort((a, b) => place(a.role) - place(b.role) || a.rank - b.rank);
    return lane;
  }

  #widenStep(attempt, isDead, step, start, end) {
    const steps = isDead ? (this.deadSteps.get(attempt) ?? new Map()) : this.steps;
    if (isDead) this.deadSteps.set(attempt, steps);
    const known = steps.get(step);
    if (known) {
      known[0] = Math.min(known[0], start);
      known[1] = Math.max(known[1], end);
    } else {
      steps.set(step, [start, end]);
    }
  }

  /**
   * Return [start, end, num] of the newest `count` steps, or null before the first. What came before the last restored step is left
   * out as soon as there is something after it: hours may lie between.
   */
  latestSteps(count) {
    let latest = -1;
    for (const step of this.steps.keys()) latest = Math.max(latest, step);
    if (latest < 0) return null;
    let start = Infinity;
    let end = -Infinity;
    let num = 0;
    const restored = this.branches.resumes.at(-1)?.step ?? -1;
    const first = Math.max(latest - count + 1, latest > restored ? restored + 1 : 0, 0);
    for (let step = first; step <= latest; step += 1) {
      const known = this.steps.get(step);
      if (!known) continue;
      start = Math.min(start, known[0]);
      end = Math.max(end, known[1]);
      num += 1;
    }
    return [start, end, num];
  }

  /** Return a function that gives the Unix time, in seconds, at which a step (of an attempt's dead branch) ended; it interpolates. */
  clockOfSteps(attempt = null) {
    const known = [...(attempt === null ? this.steps : (this.deadSteps.get(attempt) ?? []))].sort(([a], [b]) => a - b);
    const steps = known.map(([step]) => step);
    const base = Number((this.origin ?? 0n) / 1000n) / 1e6;
    const ends = known.map(([, [, end]]) => base + end);
    return (step) => {
      if (!steps.length) return null;
      let at = 0;
      while (at < steps.length - 1 && steps[at + 1] <= step) at += 1;
      if (at === steps.length - 1 || steps[at] >= step) return ends[at];
      return ends[at] + ((ends[at + 1] - ends[at]) * (step - steps[at])) / (steps[at + 1] - steps[at]);
    };
  }

  /** Return seconds per phase inside [from, to], summed over `lanes` at depth 0, as a Map of phase to seconds. */
  totals(from, to, lanes = this.sorted) {
    const sums = new Map();
    for (const { rows } of lanes) {
      const row = rows[0];
      for (let i = row.firstAfter(from); i < row.length && row.start[i] < to; i += 1) {
        const inside = Math.min(row.end[i], to) - Math.max(row.start[i], from);
        if (inside > 0) sums.set(row.phase[i], (sums.get(row.phase[i]) ?? 0) + inside);
      }
    }
    return sums;
  }
}
