/** Lines by columns of the screen, as the console sends them: one grid for all, each column with the extremes of all its points. */

import { decode } from "./series.js";

export const COLUMNS_TYPE = "application/vnd.pitwall.columns";

/**
 * @typedef {object} Head of one line, as console/api/compare/columns.py writes it
 * @property {string} run
 * @property {string} name
 * @property {string} role
 * @property {number} rank
 * @property {number} n columns
 * @property {number} of points
 * @property {[column: number, value: string][]} odd
 * @property {number | null} first
 * @property {boolean} is_single
 * @property {boolean} has_smooth
 * @property {boolean} is_wide
 */
/** @typedef {{ low: number, width: number }} Grid */

/**
 * Return the lines of an answer in the typed form, on their grid, and the runs that have not measured the x axis.
 *
 * @param {ArrayBuffer} buffer
 * @returns {{ lines: ColumnLine[], unplaced: string[] }}
 */
export function readLines(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let at = padded(4 + size);
  const take = (/** @type {any} */ Column, /** @type {number} */ n) => {
    const values = new Column(buffer, at, n);
    at = padded(at + values.byteLength);
    return /** @type {number[]} */ (Array.from(values));
  };
  const known = (/** @type {number[]} */ values) => values.map((value) => (Number.isNaN(value) ? null : value));
  const lines = head.series.map((/** @type {Head} */ own) => {
    const Values = own.is_wide ? Float64Array : Float32Array;
    const { first, n } = own;
    const column = first === null ? take(Int32Array, n) : Array.from({ length: n }, (_none, i) => first + i);
    const y = known(take(Values, n));
    const low = own.is_single ? y : known(take(Values, n));
    const high = own.is_single ? y : known(take(Values, n));
    return new ColumnLine(own, head, { column, y, low, high, smooth: own.has_smooth ? known(take(Values, n)) : null });
  });
  return { lines, unplaced: head.unplaced };
}

const padded = (/** @type {number} */ size) => Math.ceil(size / 8) * 8;

/** One line as ./chart.js draws it. x is the middle of a column; a column of one step is that step. */
class ColumnLine {
  kind = "metric";
  attempt = 1;

  /**
   * @param {Pick<Head, "run" | "name" | "role" | "rank" | "of" | "odd">} whose
   * @param {Grid} grid
   * @param {{ column: number[], y: (number | null)[], low: (number | null)[], high: (number | null)[], smooth: (number | null)[] | null }} columns
   */
  constructor(whose, grid, columns) {
    this.run = whose.run;
    this.name = whose.name;
    this.role = whose.role;
    this.rank = whose.rank;
    this.of = whose.of;
    this.width = grid.width;
    const half =
      grid.width > 1 && Number.isInteger(grid.width) ? (grid.width - 1) / 2 : grid.width === 1 ? 0 : grid.width / 2;
    const place = (/** @type {number} */ column) => grid.low + column * grid.width + half;
    this.x = columns.column.map(place);
    this.y = columns.y;
    this.low = columns.low;
    this.high = columns.high;
    this.smooth = columns.smooth;
    this.odd = whose.odd.map(
      ([column, value]) => /** @type {[number, number]} */ ([place(column), decode(value) ?? NaN]),
    );
  }

  /** Return the newest value, or null. */
  get latest() {
    return this.y.at(-1) ?? null;
  }

  /** Return the columns to draw; they are those of the window that was asked for, smoothed as was asked. */
  columns() {
    const { x, y, low, high, odd, of } = this;
    return { x, y, smooth: this.smooth ?? y, low, high, odd, n: x.length, of, isWhole: false };
  }
}
