/** A tile as it travels (docs/use/profile.md): read without copying, its events sorted into rows. */

import { EventRow } from "./rows.js";

export const COLUMNS = 512;
const NONE = 65535;
const FULL = 250; // of 255: busy all the time
const LEAST_RUN = 12; // columns

/** @import { Palette } from "./palette.js" */
/** @import { Table } from "./rows.js" */

export class Tile {
  painted = 0; // with which theme
  /** @type {Uint8Array} of a tile that is not exact: how busy each column is, of 255 */
  busy = new Uint8Array();
  /** @type {Uint16Array} and its longest event */
  name = new Uint16Array();

  /**
   * @param {ArrayBuffer} buffer
   * @param {number} origin of the layer, in ns after the trace's
   */
  constructor(buffer, origin) {
    const view = new DataView(buffer);
    const size = view.getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    this.header = header;
    this.bytes = buffer.byteLength;
    this.isExact = header.exact;
    this.width = 2 ** header.level * COLUMNS;
    this.begin = origin + header.index * this.width;
    this.end = this.begin + this.width;
    /** @type {Table} */
    this.table = { names: header.names, cats: header.cats, labels: header.labels };
    /** @type {[lane: number, depth: number][]} */
    const places = header.rows;
    this.rowOf = new Map(places.map(([lane, depth], i) => [lane * 256 + depth, i]));
    /** @type {EventRow[]} */
    this.rows = [];
    /** @type {{ first: number, row: number, start: number, end: number, name: number }[] | null} */
    this.known = null;
    let at = 4 + size;
    /**
     * @template {{ byteLength: number }} T
     * @param {new (buffer: ArrayBuffer, at: number, length: number) => T} Type
     * @param {number} length
     */
    const take = (Type, length) => {
      at = Math.ceil(at / 8) * 8;
      const found = new Type(buffer, at, length);
      at += found.byteLength;
      return found;
    };
    const { rows, n } = header;
    if (header.exact) {
      this.#sort(
        {
          row: take(Uint16Array, n),
          name: take(Uint16Array, n),
          start: take(Float64Array, n),
          duration: take(Float64Array, n),
          id: take(Uint32Array, n),
        },
        rows.length,
        n,
      );
    } else {
      this.busy = take(Uint8Array, rows.length * COLUMNS);
      this.name = take(Uint16Array, rows.length * COLUMNS);
    }
  }

  /**
   * Make rows of the columns of an exact tile.
   *
   * @param {{ row: Uint16Array, name: Uint16Array, start: Float64Array, duration: Float64Array, id: Uint32Array }} columns
   * @param {number} count of rows
   * @param {number} n of events
   */
  #sort({ row, name, start, duration, id }, count, n) {
    const order = Uint32Array.from({ length: row.length }, (_none, i) => i).sort(
      (a, b) => row[a] - row[b] || start[a] - start[b],
    );
    let first = 0;
    for (let each = 0; each < count; each += 1) {
      let last = first;
      while (last < n && row[order[last]] === each) last += 1;
      const mine = order.subarray(first, last);
      const begins = Float64Array.from(mine, (i) => start[i] + this.begin);
      this.rows.push(
        new EventRow({
          start: begins,
          end: Float64Array.from(mine, (i, k) => begins[k] + duration[i]),
          name: Uint16Array.from(mine, (i) => name[i]),
          id: Float64Array.from(mine, (i) => id[i]),
          table: this.table,
        }),
      );
      first = last;
    }
  }

  /** Return the row of a lane and depth: an EventRow of an exact tile, an index of another one; null without events. */
  row(/** @type {number} */ lane, /** @type {number} */ depth) {
    const found = this.rowOf.get(lane * 256 + depth);
    if (found === undefined) return null;
    return this.isExact ? this.rows[found] : found;
  }

  /** Return the columns of all rows as pixels: colour of the longest event, the more see-through the less busy. */
  pixels(/** @type {Palette} */ palette) {
    if (this.painted !== palette.version || !this.image) {
      this.painted = palette.version;
      const colors = palette.pixels(this.table);
      this.image = new Uint32Array(this.name.length);
      for (let i = 0; i < this.name.length; i += 1) {
        if (this.name[i] === NONE) continue;
        const alpha = 80 + Math.round(this.busy[i] * 0.686);
        this.image[i] = ((colors[this.name[i]] & 0xffffff) | (alpha << 24)) >>> 0;
      }
      for (const run of this.runs) this.image[run.first] = ((this.image[run.first] & 0xffffff) | (110 << 24)) >>> 0; // where one begins
    }
    return this.image;
  }

  /** Return what fills many columns in a row by itself: { first, last, row, start, end, name }; it has room for a word. */
  get runs() {
    if (this.known) return this.known;
    this.known = [];
    const each = this.width / COLUMNS;
    for (let base = 0; base < this.name.length; base += COLUMNS) {
      let first = 0;
      for (let i = 1; i <= COLUMNS; i += 1) {
        if (i < COLUMNS && this.name[base + i] === this.name[base + first] && this.busy[base + i] > FULL) continue;
        if (i - first >= LEAST_RUN && this.busy[base + first] > 0 && this.name[base + first] !== NONE) {
          this.known.push({
            first: base + first,
            row: base / COLUMNS,
            start: this.begin + first * each,
            end: this.begin + i * each,
            name: this.name[base + first],
          });
        }
        first = i;
      }
    }
    return this.known;
  }

  /** Return { name, category, busy } of the column at `time` in a row of a tile that is not exact, or null. */
  column(/** @type {number} */ row, /** @type {number} */ time) {
    const at = Math.floor(((time - this.begin) / this.width) * COLUMNS);
    const place = row * COLUMNS + at;
    if (at < 0 || at >= COLUMNS || this.name[place] === NONE) return null;
    const name = this.name[place];
    return {
      text: this.table.names[name],
      label: this.table.labels?.[name] ?? "",
      category: this.table.cats[name],
      busy: this.busy[place] / 255,
    };
  }
}
