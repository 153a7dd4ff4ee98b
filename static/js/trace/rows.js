/** Events of one row of the timeline, sorted by begin, none overlapping: columns in ns after the trace's origin. */

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

export class Row {
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
    this.start = start;
    this.end = end;
    this.name = name;
    this.id = id;
    this.table = table;
    this.about = about;
  }

  get length() {
    return this.start.length;
  }

  /** Return the index of the first event that ends after `time`. */
  firstAfter(/** @type {number} */ time) {
    let low = 0;
    let high = this.end.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Return the index of the event at `time`, or of the nearest one within `slack`, or -1. */
  at(/** @type {number} */ time, /** @type {number} */ slack) {
    const first = this.firstAfter(time - slack);
    let best = -1;
    for (let i = first; i < this.length && this.start[i] <= time + slack; i += 1) {
      if (this.start[i] <= time && this.end[i] >= time) return i;
      if (best < 0) best = i;
      if (this.start[i] > time) break;
    }
    return best;
  }

  text(/** @type {number} */ i) {
    return this.table.names[this.name[i]];
  }

  category(/** @type {number} */ i) {
    return this.table.cats[this.name[i]];
  }
}

/**
 * Return a row made of loose columns, sorted by begin.
 *
 * @param {{ start: number[], end: number[], name: number[], id: number[], table: Table, about?: Phase[] }} columns
 */
export function sorted({ start, end, name, id, table, about }) {
  const order = Uint32Array.from(start.keys()).sort((a, b) => start[a] - start[b] || end[b] - end[a]);
  return new Row({
    start: Float64Array.from(order, (i) => start[i]),
    end: Float64Array.from(order, (i) => end[i]),
    name: Uint32Array.from(order, (i) => name[i]),
    id: Float64Array.from(order, (i) => id[i]),
    table,
    about: about && Array.from(order, (i) => about[i]),
  });
}
