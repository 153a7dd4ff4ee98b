/** One series of a run: points by step (or time), what of it is shown, and up to which frame it is complete. */

/** @import { Smoothing } from "./smoothing.js" */

/** @typedef {number | string | null} Travelled a number as JSON has it */
/** @typedef {{ from: number, to: number, span?: number }} Stretch both ends included, in units of x; `span` is what was asked for */
/** @typedef {{ x: number[], y: Travelled[], smooth?: Travelled[] | null, of?: number }} Columns what the server read, of how many points */
/**
 * @typedef {object} Detail the finer columns of a zoomed window
 * @property {number} from
 * @property {number} to
 * @property {number} [span] what was asked for
 * @property {number[]} x
 * @property {(number | null)[]} y
 * @property {(number | null)[]} smooth
 * @property {number} of
 * @property {number} through
 */

const LIVE_POINTS = 200; // of a series with points left out, until it is read again

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
  /** @type {{ smoothing: Smoothing, values: (number | null)[] } | null} */
  served = null; // the smoothed values of the server, where points were left out
  /** @type {{ text: string, values: (number | null)[] } | null} */
  #cache = null;
  #numLive = 0;

  /** @param {{ kind?: string, name: string, role?: string, rank?: number, attempt?: number }} whose */
  constructor({ kind = "metric", name, role = "driver", rank = 0, attempt = 1 }) {
    this.kind = kind;
    this.name = name;
    this.role = role;
    this.rank = rank;
    this.attempt = attempt;
  }

  /**
   * Take what the server read, complete through frame `through` and smoothed like this.
   *
   * @param {Columns} columns
   * @param {number} through
   * @param {Smoothing} smoothing
   */
  set({ x, y, smooth = null, of }, through, smoothing) {
    this.x = x.map(Number);
    this.y = y.map(decode);
    this.of = of ?? this.x.length;
    this.through = through;
    this.served = this.isThinned ? { smoothing, values: (smooth ?? y).map(decode) } : null;
    this.#cache = null;
    this.#numLive = 0;
    this.detail = null;
    this.isStale = false;
  }

  /**
   * Take the finer columns of a window, complete through frame `through`.
   *
   * @param {Columns} columns
   * @param {number} through
   * @param {Stretch} window
   */
  setDetail({ x, y, smooth = null, of }, through, window) {
    const ys = y.map(decode);
    const count = of ?? x.length;
    this.detail = { ...window, x: x.map(Number), y: ys, smooth: smooth?.map(decode) ?? [...ys], of: count, through };
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
    this.#cache = null;
    const last = this.x.length - 1;
    let at = last + 1;
    while (at > 0 && this.x[at - 1] > x) at -= 1;
    this.x.splice(at, 0, x);
    this.y.splice(at, 0, y);
    if (this.served) {
      const { smoothing, values } = this.served;
      values.splice(at, 0, at > last ? smoothing.next(values[last] ?? null, y, this.of) : null);
      this.#numLive += 1;
      this.isStale ||= this.#numLive > LIVE_POINTS || values[at] === null; // null: only the server can tell
    }
    if (seq > (this.detail?.through ?? Infinity)) this.pushDetail(x, y);
  }

  /**
   * Append one point to the finer columns of a zoomed window, if it lies in it. It is smoothed as the same point of all is.
   *
   * @param {number} x
   * @param {number | null} y
   */
  pushDetail(x, y) {
    const detail = this.detail;
    if (!detail || x < detail.from || x > detail.to) return;
    detail.x.push(x);
    detail.y.push(y);
    detail.smooth.push(this.served?.values[this.x.lastIndexOf(x)] ?? null);
    detail.of += 1;
  }

  /**
   * Return the smoothed y of all points. Where points were left out they are the server's: as it was asked the last time, until
   * it has answered, because what is left cannot be smoothed.
   *
   * @param {Smoothing} smoothing
   */
  smoothed(smoothing) {
    if (smoothing.isNone) return this.y;
    if (this.served) return this.served.values;
    if (this.#cache?.text !== smoothing.text) this.#cache = { text: smoothing.text, values: smoothing.of(this.y) };
    return this.#cache.values;
  }

  /**
   * Return the columns to draw: the finer ones of a window where they were loaded. `isWhole`: they are every point there is.
   *
   * @param {Smoothing} smoothing
   * @param {Stretch | null} window
   */
  columns(smoothing, window) {
    const { detail } = this;
    if (detail && window && detail.from <= window.from && detail.to >= window.to) {
      const { x, y, smooth, of } = detail;
      return { x, y, smooth: smoothing.isNone ? y : smooth, n: x.length, of, isWhole: false };
    }
    const isWhole = !this.isThinned;
    return { x: this.x, y: this.y, smooth: this.smoothed(smoothing), n: this.n, of: this.of, isWhole };
  }

  /** Return the newest value, or null. */
  get latest() {
    return this.y.at(-1) ?? null;
  }
}
