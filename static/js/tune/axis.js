/** What runs of a sweep differ in, as axes, and the ranges that were brushed on them. */

import { figure } from "../format.js";

/** @typedef {{ id: string, label: string, unit: string, isKnob: boolean, isLog: boolean, words: string[] }} SweepColumn */
/** @typedef {{ id: string, name: string, color: number, values: Record<string, number | string> }} SweepRun */
/** @typedef {[low: number, high: number]} Range of numbers of an axis */

/** One column over the runs: words are numbered by their place. */
export class Axis {
  /**
   * @param {SweepColumn} column
   * @param {SweepRun[]} runs
   */
  constructor(column, runs) {
    this.column = column;
    const numbers = runs.map((run) => this.number(run)).filter(Number.isFinite);
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    this.isEmpty = !numbers.length;
    this.isLog = column.isLog && low > 0;
    /** @type {Range} */
    this.range = this.isEmpty ? [0, 1] : low === high ? this.#around(low) : [low, high];
    this.distinct = [...new Set(numbers)].sort((a, b) => a - b);
  }

  /** @returns {Range} */
  #around(/** @type {number} */ value) {
    if (this.isLog) return [value / 2, value * 2];
    const room = Math.abs(value) * 0.1 || 1;
    return [value - room, value + room];
  }

  /** Return a run's number on this axis, NaN without one. */
  number(/** @type {SweepRun} */ run) {
    const value = run.values[this.column.id];
    if (value === undefined || value === null) return Number.NaN;
    if (!this.column.words.length) return Number(value);
    const place = this.column.words.indexOf(String(value));
    return place < 0 ? Number.NaN : place;
  }

  /** Return where a number stands between the ends of the axis, 0 to 1. */
  shareOf(/** @type {number} */ number) {
    const [low, high] = this.range.map((end) => this.#scaled(end));
    return (this.#scaled(number) - low) / (high - low);
  }

  /** Return the number that stands at a share of the axis. */
  numberAt(/** @type {number} */ share) {
    const [low, high] = this.range.map((end) => this.#scaled(end));
    const scaled = low + share * (high - low);
    return this.isLog ? 10 ** scaled : scaled;
  }

  #scaled(/** @type {number} */ number) {
    return this.isLog ? Math.log10(number) : number;
  }

  /** Return how a number is written; of words the word. */
  text(/** @type {number} */ number) {
    const { words } = this.column;
    if (words.length) return words[Math.round(number)] ?? "";
    return this.column.isKnob ? short(number) : figure(number);
  }
}

const WRITTEN = [4, 6]; // digits of a number on the page, and in its address: an end is one of these

/** The ranges that were brushed, by column: a run is in if it lies in all of them. */
export class Brush {
  /** @type {Map<string, Range>} */
  ranges = new Map();

  /** Keep a range of a column; null takes it away. */
  set(/** @type {string} */ id, /** @type {Range | null} */ range) {
    if (range) this.ranges.set(id, range[0] <= range[1] ? range : [range[1], range[0]]);
    else this.ranges.delete(id);
  }

  /** Return whether a run lies in every range; a run without a number on one of them does not. */
  holds(/** @type {SweepRun} */ run, /** @type {Map<string, Axis>} */ axes) {
    for (const [id, [low, high]] of this.ranges) {
      const number = axes.get(id)?.number(run) ?? Number.NaN;
      const read = [number, ...WRITTEN.map((places) => Number(number.toPrecision(places)))];
      if (!read.some((one) => one >= low) || !read.some((one) => one <= high)) return false;
    }
    return true;
  }

  /** Return the ranges as the address has them. */
  toText() {
    return [...this.ranges].map(([id, range]) => `${id}:${range.map((end) => digits(end)).join("_")}`).join(";");
  }

  /** Take the ranges of an address; what is not of these columns, or no range, is left out. */
  read(/** @type {string} */ text, /** @type {Map<string, Axis>} */ axes) {
    this.ranges.clear();
    for (const part of text.split(";")) {
      const at = part.lastIndexOf(":");
      const [low, high] = part
        .slice(at + 1)
        .split("_")
        .map(Number);
      const id = part.slice(0, at);
      if (axes.has(id) && Number.isFinite(low) && Number.isFinite(high)) this.set(id, [low, high]);
    }
  }
}

const digits = (/** @type {number} */ value) => String(Number(value.toPrecision(6)));

/** Return a knob's number as people write it: 1e-4, 0.003. */
function short(/** @type {number} */ value) {
  return Math.abs(value) > 0 && Math.abs(value) < 1e-3
    ? Number(value.toPrecision(4)).toExponential().replace("e-0", "e-")
    : String(Number(value.toPrecision(4)));
}
