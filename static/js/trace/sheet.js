/**
 * A block of pixels that all bars of a timeline go through, line by line: columns of a far view and events of a near one cost the same,
 * whatever their number.
 */

import { brushOf } from "../charts/colors.js";
import { COLUMNS } from "./tile.js";
import { Tiles } from "./tiles.js";

const LEAST_WORD = 30; // pixels of a bar that has room for one

/** @import { Stretch } from "../timeline/window.js" */
/** @import { FileLane, Lane } from "./layout.js" */
/** @import { Palette } from "./palette.js" */
/** @import { EventRow, Table } from "./rows.js" */
/** @import { Tile } from "./tile.js" */
/** @import { Wanted } from "./tiles.js" */
/** @typedef {{ tile: Tile, left: number, right: number }} Part a tile, and the pixels that it covers */
/** @typedef {{ table: Table, name: ArrayLike<number>, start: ArrayLike<number> }} Named events, of which only names and starts are known */
/** @typedef {(row: Named, i: number, left: number, right: number, isRun: boolean) => void} Note takes a bar with room for a word; a run is a name that fills columns */

/** @typedef {{ line: Uint32Array, left: number, right: number, note?: Note }} Target where in the block to write, from which pixel to which */

export class Sheet {
  canvas = document.createElement("canvas");
  brush = brushOf(this.canvas);
  image = new ImageData(1, 1);
  pixels = new Uint32Array(this.image.data.buffer);
  ratio = 1; // of the screen's pixels to CSS pixels
  view = { from: 0, to: 1 };
  scale = 1; // pixels per ns
  level = 0; // of the tiles
  /** @type {Wanted[]} */
  missing = [];
  /** @type {Map<string, Part[]>} by layer and block */
  parts = new Map();

  /**
   * @param {Palette} palette
   * @param {(tile: Tile) => void} [onUse]
   */
  constructor(palette, onUse = () => {}) {
    this.palette = palette;
    this.onUse = onUse;
  }

  /**
   * Take a size in CSS pixels.
   *
   * @param {number} width
   * @param {number} height
   * @param {number} ratio
   */
  resize(width, height, ratio) {
    this.ratio = ratio;
    this.canvas.width = Math.max(Math.round(width * ratio), 1);
    this.canvas.height = Math.max(Math.round(height * ratio), 1);
    this.image = new ImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** Begin anew, with what is to be seen from the left edge to the right one. */
  begin(/** @type {Stretch} */ view) {
    this.view = view;
    this.scale = this.canvas.width / (view.to - view.from);
    this.level = Tiles.level(1 / this.scale);
    this.missing = [];
    this.parts = new Map();
    this.pixels.fill(0);
  }

  /**
   * Paint a row of a lane, `high` CSS pixels from `y`; `note` learns of the words that belong there.
   *
   * @param {Lane} lane
   * @param {number} depth
   * @param {number} y
   * @param {number} high
   * @param {Note} [note]
   */
  row(lane, depth, y, high, note) {
    const { canvas, pixels, ratio } = this;
    const { width } = canvas;
    const first = Math.max(Math.round(y * ratio), 0);
    const last = Math.min(Math.round((y + high) * ratio), canvas.height);
    if (last <= first) return;
    const line = pixels.subarray(first * width, (first + 1) * width);
    if (lane.tiles) {
      for (const { tile, left, right } of this.#partsOf(lane)) {
        this.onUse(tile);
        const found = tile.row(lane.id, depth);
        if (found === null || right <= left) continue;
        if (typeof found === "number") this.#columns(tile, found, { line, left, right, note });
        else this.#events(found, { line, left, right, note });
      }
    } else if (lane.rows[depth]) {
      this.#events(lane.rows[depth], { line, left: 0, right: width, note });
    }
    for (let each = first + 1; each < last; each += 1)
      pixels.copyWithin(each * width, first * width, (first + 1) * width);
  }

  /** Let the canvas have what was painted; returns the tiles that are missing. */
  end() {
    this.brush.putImageData(this.image, 0, 0);
    return this.missing;
  }

  /** Return the tiles of a lane's block that are there. */
  #partsOf(/** @type {FileLane} */ { tiles, layer, block }) {
    const id = `${layer}/${block}`;
    const known = this.parts.get(id);
    if (known) return known;
    const { view, scale, canvas } = this;
    const found = tiles.cover(block, view.from, view.to, this.level, this.missing).map(({ tile, from, to }) => ({
      tile,
      left: Math.max(Math.round((from - view.from) * scale), 0),
      right: Math.min(Math.round((to - view.from) * scale), canvas.width),
    }));
    this.parts.set(id, found);
    return found;
  }

  #events(/** @type {EventRow} */ row, /** @type {Target} */ { line, left, right, note }) {
    const { scale } = this;
    const { from } = this.view;
    const colors = this.palette.pixels(row.table);
    const last = from + right / scale;
    let free = left;
    for (let i = row.firstAfter(from + left / scale); i < row.length && row.start[i] < last; i += 1) {
      const first = (row.start[i] - from) * scale;
      const end = (row.end[i] - from) * scale;
      const a = Math.max(Math.floor(first), free);
      const b = Math.min(Math.max(Math.floor(end) - (end - first > 4 ? 1 : 0), Math.floor(first) + 1), right);
      if (b <= a) continue;
      const pixel = colors[row.name[i]];
      if (b - a === 1) line[a] = pixel;
      else line.fill(pixel, a, b);
      free = b;
      if (end - first >= LEAST_WORD) note?.(row, i, first, end, false);
    }
  }

  #columns(/** @type {Tile} */ tile, /** @type {number} */ row, /** @type {Target} */ { line, left, right, note }) {
    const { scale, view } = this;
    const pixels = tile.pixels(this.palette);
    const each = tile.width / COLUMNS;
    const step = 1 / scale / each;
    let at = (view.from + (left + 0.5) / scale - tile.begin) / each;
    const base = row * COLUMNS;
    for (let x = left; x < right; x += 1, at += step) {
      const column = Math.floor(at);
      if (column < 0 || column >= COLUMNS) continue;
      const pixel = pixels[base + column];
      if (pixel) line[x] = pixel;
    }
    if (!note) return;
    for (const run of tile.runs) {
      if (run.row !== row || run.end < view.from || run.start > view.to) continue;
      const [a, b] = [(run.start - view.from) * scale, (run.end - view.from) * scale];
      if (b - a >= LEAST_WORD) note({ table: tile.table, name: [run.name], start: [run.start] }, 0, a, b, true);
    }
  }
}
