/** Events of one row of the timeline, sorted by begin, none overlapping: columns in ns after the trace's origin. */

export class Row {
  /** `table` is { names, cats }; `name` numbers into it; `id` is the event's number in its layer (-1: it has none). */
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

  /** Return the index of the event at `time`, or of the nearest one within `slack`, or -1. */
  at(time, slack) {
    const first = this.firstAfter(time - slack);
    let best = -1;
    for (let i = first; i < this.length && this.start[i] <= time + slack; i += 1) {
      if (this.start[i] <= time && this.end[i] >= time) return i;
      if (best < 0) best = i;
      if (this.start[i] > time) break;
    }
    return best;
  }

  text(i) {
    return this.table.names[this.name[i]];
  }

  category(i) {
    return this.table.cats[this.name[i]];
  }
}

/** Return rows made of loose columns, sorted by begin. */
export function sorted({ start, end, name, id, table, about }) {
  const order = Uint32Array.from(start.keys()).sort((a, b) => start[a] - start[b] || end[b] - end[a]);
  const take = (column, Type) => Type.from(order, (i) => column[i]);
  return new Row({
    start: take(start, Float64Array),
    end: take(end, Float64Array),
    name: take(name, Uint32Array),
    id: take(id, Float64Array),
    table,
    about: about && Array.from(order, (i) => about[i]),
  });
}
