/** The phases of a run, by lane (role, rank) and depth, sorted by start, in units of a clock: a timeline of a run has seconds, one of a trace ns. */

import { EVERYTHING } from "../charts/branches.js";
import { Clock } from "./clock.js";
import { Row } from "./row.js";

/** @import { Branches } from "../charts/branches.js" */

const ORDER = ["driver", "policy", "critic", "reference", "teacher", "reward", "vllm", "runner"];
const place = (/** @type {string} */ role) => ORDER.indexOf(role) + 1 || ORDER.length + 1;
const SECOND = 1e9; // ns

/** @typedef {{ role: string, rank: number, rows: SpanRow[] }} Lane rows by depth; one without spans may be missing, never the first */
/** @typedef {Map<number, [start: number, end: number]>} Steps over all lanes */
/**
 * @typedef {object} SpanColumns of one lane, as they travel
 * @property {string} role
 * @property {number} rank
 * @property {number} [attempt] whose they are
 * @property {string[]} start in Unix ns
 * @property {(string | number)[]} duration in ns
 * @property {(string | number)[]} phase its key, or its number in the answer's list
 * @property {number[]} [depth]
 * @property {number[]} [step]
 * @property {string[]} [name]
 */
/** @typedef {{ start: number, end: number, phase: string, step: number, name: string, attempt: number, isDead: boolean }} Span */

/**
 * Columns of one depth of a lane.
 *
 * @extends {Row<number[]>}
 */
export class SpanRow extends Row {
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

  constructor() {
    super([], []);
  }

  /** Insert a span where its start belongs, nearly always at the end; returns its index. */
  insert(/** @type {Span} */ { start, end, phase, step, name, attempt, isDead }) {
    let at = this.length;
    while (at > 0 && this.start[at - 1] > start) at -= 1;
    const isLast = at === this.length;
    /** @type {<T>(column: T[], value: T) => void} */
    const put = (column, value) => {
      if (isLast) column.push(value);
      else column.splice(at, 0, value);
    };
    put(this.start, start);
    put(this.end, end);
    put(this.phase, phase);
    put(this.step, step);
    put(this.name, name);
    put(this.attempt, attempt);
    put(this.isDead, isDead);
    return at;
  }
}

/** Every lane of a run. */
export class Lanes {
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

  constructor(branches = EVERYTHING, clock = new Clock(null, SECOND)) {
    this.branches = branches;
    this.clock = clock;
  }

  /** Judge all spans anew: an attempt has begun, or was resumed past. */
  setBranches(/** @type {Branches} */ branches) {
    this.branches = branches;
    this.steps = new Map();
    this.deadSteps = new Map();
    for (const { rows } of this.sorted) {
      for (const [depth, row] of rows.entries()) {
        for (let i = 0; i < (row?.length ?? 0); i += 1) {
          row.isDead[i] = branches.isDead(row.attempt[i], row.step[i]);
          if (depth === 0) this.#widenStep(row, i);
        }
      }
    }
  }

  /** Forget all spans. */
  clear() {
    Object.assign(this, new Lanes(this.branches, this.clock));
  }

  /**
   * Add the columns of one lane. `phases` names indexes, if they are indexes. Only spans that start in [from, before) are taken.
   *
   * @param {SpanColumns} column
   * @param {string[] | null} [phases]
   * @param {{ from?: number, before?: number }} [limits]
   */
  add(column, phases = null, { from = -Infinity, before = Infinity } = {}) {
    const lane = this.lane(column.role, column.rank);
    const attempt = column.attempt ?? 1;
    for (let i = 0; i < column.start.length; i += 1) {
      const start = this.clock.offset(column.start[i]);
      if (start < from || start >= before) continue;
      const end = start + Number(column.duration[i]) / this.clock.unit;
      const phase = phases ? phases[Number(column.phase[i])] : String(column.phase[i]);
      const depth = column.depth?.[i] ?? 0;
      const step = column.step?.[i] ?? -1;
      const isDead = this.branches.isDead(attempt, step);
      lane.rows[depth] ??= new SpanRow();
      const row = lane.rows[depth];
      const at = row.insert({ start, end, phase, step, name: column.name?.[i] ?? "", attempt, isDead });
      this.start = Math.min(this.start, start);
      this.end = Math.max(this.end, end);
      this.numSpans += 1;
      if (depth === 0) this.#widenStep(row, at);
    }
  }

  /** Return the lane of a role and rank, made if it is new. */
  lane(/** @type {string} */ role, /** @type {number} */ rank) {
    const key = `${role}|${rank}`;
    const known = this.byKey.get(key);
    if (known) return known;
    const lane = { role, rank, rows: [new SpanRow()] };
    this.byKey.set(key, lane);
    this.sorted = [...this.byKey.values()].sort((a, b) => place(a.role) - place(b.role) || a.rank - b.rank);
    return lane;
  }

  /** Let the step of a span, if it is of one, reach over it. */
  #widenStep(/** @type {SpanRow} */ row, /** @type {number} */ i) {
    const [attempt, step, start, end] = [row.attempt[i], row.step[i], row.start[i], row.end[i]];
    if (step < 0) return;
    const steps = row.isDead[i] ? (this.deadSteps.get(attempt) ?? new Map()) : this.steps;
    if (row.isDead[i]) this.deadSteps.set(attempt, steps);
    const [first, last] = steps.get(step) ?? [start, end];
    steps.set(step, [Math.min(first, start), Math.max(last, end)]);
  }

  /**
   * Return [start, end, num] of the newest `count` steps, or null before the first. What came before the last restored step is left
   * out as soon as there is something after it: hours may lie between.
   *
   * @param {number} count
   * @returns {[start: number, end: number, num: number] | null}
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
  clockOfSteps(/** @type {number | null} */ attempt = null) {
    const known = [...(attempt === null ? this.steps : (this.deadSteps.get(attempt) ?? []))].sort(([a], [b]) => a - b);
    const steps = known.map(([step]) => step);
    const base = Number((this.clock.origin ?? 0n) / 1000n) / 1e6;
    const ends = known.map(([, [, end]]) => base + end);
    return (/** @type {number} */ step) => {
      if (!steps.length) return null;
      let at = 0;
      while (at < steps.length - 1 && steps[at + 1] <= step) at += 1;
      if (at === steps.length - 1 || steps[at] >= step) return ends[at];
      return ends[at] + ((ends[at + 1] - ends[at]) * (step - steps[at])) / (steps[at + 1] - steps[at]);
    };
  }

  /**
   * Return the time of each phase inside [from, to], summed over `lanes` at depth 0.
   *
   * @param {number} from
   * @param {number} to
   * @param {Lane[]} [lanes]
   * @returns {Map<string, number>}
   */
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
