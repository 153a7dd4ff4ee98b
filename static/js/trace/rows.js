/** Events of one row of a trace: columns in ns after its origin. */

import { Row } from "../timeline/row.js";

/**
 * @typedef {object} Table of names, which events number
 * @property {string[]} names
 * @property {number[]} cats the category of each
 * @property {string[]} [labels] words for the bars, "" where there is none
 * @property {string[]} [words] what the painter has written on them
 * @property {Uint32Array} [pixels] their colors, in the theme number
 * @property {number} [version]
 */
/** @typedef {{ phase: string, step: number, name: string }} Phase what the run says of a span */

/** @extends {Row<Float64Array>} */
export class EventRow extends Row {
  /**
   * `name` numbers into `table`; `id` is the event's number in its layer (-1: it has none).
   *
   * @param {object} columns
   * @param {Float64Array} columns.start
   * @param {Float64Array} columns.end
   * @param {Uint16Array | Uint32Array} columns.name
   * @param {Float64Array} columns.id
   * @param {Table} columns.table
   * @param {Phase[] | null} [columns.about]
   */
  constructor({ start, end, name, id, table, about = null }) {
    super(start, end);
    this.name = name;
    this.id = id;
    this.table = table;
    this.about = about;
  }

  text(/** @type {number} */ i) {
    return this.table.names[this.name[i]];
  }

  /** The word on an event's bar where it is another than its name, else "". */
  label(/** @type {number} */ i) {
    return this.table.labels?.[this.name[i]] ?? "";
  }

  category(/** @type {number} */ i) {
    return this.table.cats[this.name[i]];
  }
}
