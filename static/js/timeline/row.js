/** Spans of one row of a timeline, sorted by start, none overlapping. */

/** @template {ArrayLike<number>} Column */
export class Row {
  /**
   * @param {Column} start
   * @param {Column} end
   */
  constructor(start, end) {
    this.start = start;
    this.end = end;
  }

  get length() {
    return this.start.length;
  }

  /** Return the index of the first span that ends after `time`. */
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

  /** Return the index of the span at `time`, or of the nearest one within `slack`, or -1. */
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
}
