/** One series of a run: points by step (or time), what of it is shown, and up to which frame it is complete. */

import { advance, smooth } from "./smooth.js";

/** @typedef {number | string | null} Travelled a number as JSON has it */
/**
 * @typedef {object} Detail the finer columns of a zoomed window
 * @property {number} from
 * @property {number} to
 * @property {number[]} x
 * @property {(number | null)[]} y
 * @property {(number | null)[] | null} [smooth]
 * @property {number} of
 * @property {number} through
 */

/** Return the number that travelled: null stays null, "NaN" and "Infinity" become what they name. */
export function decode(/** @type {Travelled} */ value) {
  return value === null || typeof value === "number" ? value : Number(value);
}

/** Points in the order of x, of one attempt. */
export class Series {
  /** @type {number[]} */
  x = [];
  /** @type {(number | null)[]} */
  y = [];
  of = 0;
  through = 0;
  isStale = false;
  /** @type {Detail | null} */
  detail = null;
  /** @type {{ weight: number, values: (number | null)[] } | null} */
  served = null; // the smoothed values of the server, where points were left out
  /** @type {{ weight: number, state: { sum: number, mass: number }, values: (number | null)[] } | null} */
  #cache = null;

  /** @param {{ kind?: string, name: string, role?: string, rank?: number, attempt?: number }} whose */
  constructor({ kind = "metric", name, role = "driver", rank = 0, attempt = 1 }) {
    this.kind = kind;
    this.name = name;
    this.role = role;
    this.rank = rank;
    this.attempt = attempt;
    this.set({ x: [], y: [], of: 0 }, 0, 0);
  }

  /**
   * Take what the server read: columns x, y (and smooth), of how many points, complete through frame `through`.
   *
   * @param {{ x: number[], y: Travelled[], smooth?: Travelled[] | null, of?: number }} columns
   * @param {number} through
   * @param {number} weight
   */
  set({ x, y, smooth: smoothed = null, of }, through, weight) {
    this.x = x.map(Number);
    this.y = y.map(decode);
    this.of = of ?? this.x.length;
    this.through = through;
    this.served = this.of > this.x.length && smoothed ? { weight, values: smoothed.map(decode) } : null;
    this.#cache = null;
    this.detail = null;
    this.isStale = false;
  }

  get n() {
    return this.x.length;
  }

  get isThinned() {
    return this.of > this.x.length;
  }

  /**
   * Append one point that a frame brought. A point before the last one is put where it belongs.
   *
   * @param {number} x
   * @param {number | null} y
   * @param {number} [seq] of the frame
   */
  push(x, y, seq = Infinity) {
    this.of += 1;
    const last = this.x.length - 1;
    if (last < 0 || this.x[last] <= x) {
      this.x.push(x);
      this.y.push(y);
      if (this.served) this.served.values.push(next(this.served, y));
      if (this.#cache) this.#cache.values.push(advance(this.#cache.state, y, this.#cache.weight));
    } else {
      let at = last;
      while (at > 0 && this.x[at - 1] > x) at -= 1;
      this.x.splice(at, 0, x);
      this.y.splice(at, 0, y);
      this.served?.values.splice(at, 0, y);
      this.#cache = null;
    }
    if (seq > (this.detail?.through ?? Infinity)) this.pushDetail(x, y);
  }

  /**
   * Append one point to the finer columns of a zoomed window, if it lies in it.
   *
   * @param {number} x
   * @param {number | null} y
   */
  pushDetail(x, y) {
    const detail = this.detail;
    if (!detail || x < detail.from || x > detail.to) return;
    detail.x.push(x);
    detail.y.push(y);
    detail.of += 1;
    detail.smooth = null;
  }

  /**
   * Return the smoothed y of all points: the server's where points were left out, else computed here.
   *
   * @param {number} weight
   */
  smoothed(weight) {
    if (weight <= 0) return this.y;
    if (this.served && this.served.weight === weight) return this.served.values;
    if (this.#cache?.weight === weight) return this.#cache.values;
    const state = { sum: 0, mass: 0 };
    const values = this.y.map((y) => advance(state, y, weight));
    this.#cache = { weight, state, values };
    return values;
  }

  /**
   * Return the columns to draw: the finer ones of a zoomed window where they were loaded.
   *
   * @param {number} weight
   * @param {{ min: number, max: number } | null} zoom
   */
  columns(weight, zoom) {
    const detail = this.detail;
    if (detail && zoom && detail.from <= zoom.min && detail.to >= zoom.max) {
      return {
        x: detail.x,
        y: detail.y,
        smooth: detail.smooth ?? smooth(detail.y, weight),
        n: detail.x.length,
        of: detail.of,
      };
    }
    return { x: this.x, y: this.y, smooth: this.smoothed(weight), n: this.n, of: this.of };
  }

  /** Return the newest value, or null. */
  get latest() {
    return this.y.at(-1) ?? null;
  }
}

/** @param {{ weight: number, values: (number | null)[] }} served @param {number | null} y */
function next({ weight, values }, y) {
  const before = values[values.length - 1] ?? null;
  if (y === null || before === null) return y;
  return Number.isFinite(y) && Number.isFinite(before) ? weight * before + (1 - weight) * y : y;
}
