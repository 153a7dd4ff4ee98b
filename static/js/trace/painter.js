/**
 * Draws a timeline on a canvas. All bars go through one block of pixels, row by row: columns of a far view and events of a near one cost the
 * same, whatever their number; words, axis and frames are drawn on top.
 */

import { brushOf, color, hatch, onTheme } from "../charts/colors.js";
import { axisText, niceStep } from "./clock.js";
import { COLUMNS } from "./tile.js";
import { Tiles } from "./tiles.js";

export const AXIS = 24;
const FONT = '11px Inter, "Inter", system-ui, sans-serif';
const HEAD_FONT = '600 12px Inter, "Inter", system-ui, sans-serif';
const AXIS_FONT = '10.5px Inter, "Inter", system-ui, sans-serif';
const LEAST_LABEL = 30;
const MOST_LABELS = 500;

/** @import { Stretch } from "./clock.js" */
/** @import { Body, Head, Layout } from "./layout.js" */
/** @import { Palette } from "./palette.js" */
/** @import { Row } from "./rows.js" */
/** @import { Tile } from "./tile.js" */
/** @typedef {{ from: number, scale: number, left: number, right: number }} Scale from when, pixels per ns, from which pixel to which */
/** @typedef {{ item: Head | Body, laneKey?: undefined, row?: undefined, column?: undefined }} HeadHit a head, or a lane's name */
/** @typedef {{ item: Body, laneKey: string, depth: number, time: number }} Place where in a lane */
/** @typedef {Place & { row?: undefined, column?: ReturnType<Tile["column"]> }} LaneHit no event, or a column of a view from afar */
/** @typedef {Place & { row: Row, i: number, column?: undefined }} EventHit the event number `i` of a row */
/** @typedef {HeadHit | LaneHit | EventHit} Hit what is at a point */

/**
 * Write the events of a row into a line of pixels; call `label(i, left, right)` for those with room for a word.
 *
 * @param {Uint32Array} line
 * @param {Row} row
 * @param {Palette} palette
 * @param {Scale} scale
 * @param {((i: number, left: number, right: number) => void) | null} [label]
 */
export function paintRow(line, row, palette, { from, scale, left, right }, label = null) {
  const colors = palette.pixels(row.table);
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
    if (label && end - first >= LEAST_LABEL) label(i, first, end);
  }
}

/**
 * Write columns of a tile into a line of pixels.
 *
 * @param {Uint32Array} line
 * @param {Tile} tile
 * @param {number} row
 * @param {Palette} palette
 * @param {Scale} scale
 */
export function paintColumns(line, tile, row, palette, { from, scale, left, right }) {
  const pixels = tile.pixels(palette);
  const each = tile.width / COLUMNS;
  const step = 1 / scale / each;
  let at = (from + (left + 0.5) / scale - tile.begin) / each;
  const base = row * COLUMNS;
  for (let x = left; x < right; x += 1, at += step) {
    const column = Math.floor(at);
    if (column < 0 || column >= COLUMNS) continue;
    const pixel = pixels[base + column];
    if (pixel) line[x] = pixel;
  }
}

export class Painter {
  width = 0; // of the canvas, in CSS pixels, like
  height = 0;
  label = 168; // for the names of lanes
  ratio = 1;
  /** @type {CanvasPattern | null} */
  waiting = null;
  /** @type {((tile: Tile) => void) | null} */
  onUse = null;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Palette} palette
   */
  constructor(canvas, palette) {
    this.canvas = canvas;
    this.palette = palette;
    this.context = brushOf(canvas, { alpha: false });
    this.sheet = document.createElement("canvas");
    this.brush = brushOf(this.sheet);
    this.image = this.brush.createImageData(1, 1);
    this.pixels = new Uint32Array(this.image.data.buffer);
    /** @type {Map<string, number>} */
    this.widths = new Map();
    onTheme(() => {
      this.waiting = null;
    });
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    if (this.width === clientWidth && this.height === clientHeight && this.ratio === ratio) return;
    this.width = clientWidth;
    this.height = clientHeight;
    this.ratio = ratio;
    this.waiting = null;
    this.label = clientWidth < 600 ? 92 : 168;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.sheet.width = Math.max(Math.round((clientWidth - this.label) * ratio), 1);
    this.sheet.height = Math.max(Math.round((clientHeight - AXIS) * ratio), 1);
    this.image = this.brush.createImageData(this.sheet.width, this.sheet.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /**
   * Return the pixel of a moment.
   *
   * @param {number} time
   * @param {Stretch} view
   */
  x(time, { from, to }) {
    return this.label + ((time - from) / (to - from)) * (this.width - this.label);
  }

  /**
   * Return the moment at a pixel.
   *
   * @param {number} x
   * @param {Stretch} view
   */
  time(x, { from, to }) {
    return from + ((x - this.label) / (this.width - this.label)) * (to - from);
  }

  /** Paint what is in sight and return the tiles that are missing. */
  paint({ layout, view, top, selection, chosen, hover, steps, isByStep, zero }) {
    const { context, width, height, ratio } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = color("--surface");
    context.fillRect(0, 0, width, height);
    const items = layout.between(top, top + height - AXIS);
    const missing = [];
    const labels = [];
    this.#backs(items, top);
    this.#sheet(items, view, top, missing, labels);
    context.drawImage(this.sheet, this.label, AXIS, width - this.label, height - AXIS);
    this.#lines(view, steps, isByStep, zero);
    this.#words(labels);
    if (hover) this.#outline(hover, items, view, top, "--text", 1);
    if (chosen) this.#outline(chosen, items, view, top, "--text", 2);
    if (selection) this.#frame(selection, view);
    this.#names(items, top);
    return missing;
  }

  #backs(items, top) {
    const { context, width, label } = this;
    this.waiting ??= hatch(context);
    for (const item of items) {
      const y = AXIS + item.y - top;
      if (item.type === "group") {
        context.fillStyle = color("--surface-2");
        context.fillRect(0, y, width, item.height - 2);
        continue;
      }
      const isWaiting = item.lane.kind === "phase" || item.lane.kind === "stream";
      context.fillStyle = isWaiting ? this.waiting : color("--trace-lane");
      const high = isWaiting ? item.rowHeight : item.rows * (item.rowHeight + 1) - 1;
      context.fillRect(label, y, width - label, high);
    }
  }

  #sheet(items, view, top, missing, labels) {
    const { sheet, pixels, ratio, palette } = this;
    const wide = sheet.width;
    const scale = wide / (view.to - view.from);
    const level = Tiles.level(1 / scale);
    const covers = new Map();
    pixels.fill(0);
    for (const item of items) {
      if (item.type !== "lane") continue;
      const { lane } = item;
      let parts = null;
      if (lane.tiles) {
        const id = `${lane.layer}/${lane.block}`;
        if (!covers.has(id)) covers.set(id, this.#cover(lane, view, level, scale, missing));
        parts = covers.get(id);
      }
      for (let depth = 0; depth < item.rows; depth += 1) {
        const y = item.y - top + depth * (item.rowHeight + 1);
        const first = Math.max(Math.round(y * ratio), 0);
        const last = Math.min(Math.round((y + item.rowHeight) * ratio), sheet.height);
        if (last <= first) continue;
        const line = pixels.subarray(first * wide, (first + 1) * wide);
        let before = null;
        const label = (row) => (i, a, b) => {
          const text = row.table.names[row.name[i]];
          const isRun = row.id[i] < 0 && !row.about;
          if (
            before?.text === text &&
            a / ratio < before.b + 1 &&
            (isRun || before.isRun || before.start === row.start[i])
          ) {
            before.b = Math.max(before.b, b / ratio); // it goes on in the next tile
          } else if (labels.length < MOST_LABELS) {
            before = { row, i, text, start: row.start[i], isRun, a: a / ratio, b: b / ratio, y, high: item.rowHeight };
            labels.push(before);
          }
        };
        if (lane.rows) {
          const row = lane.rows[depth];
          if (row) paintRow(line, row, palette, { from: view.from, scale, left: 0, right: wide }, label(row));
        } else {
          for (const part of parts) this.#part(line, part, lane, depth, view, scale, label);
        }
        for (let each = first + 1; each < last; each += 1)
          pixels.copyWithin(each * wide, first * wide, (first + 1) * wide);
      }
    }
    this.brush.putImageData(this.image, 0, 0);
  }

  #cover(lane, view, level, scale, missing) {
    return lane.tiles.cover(lane.block, view.from, view.to, level, missing).map(({ tile, from, to }) => ({
      tile,
      left: Math.max(Math.round((from - view.from) * scale), 0),
      right: Math.min(Math.round((to - view.from) * scale), this.sheet.width),
      from,
      to,
    }));
  }

  #part(line, { tile, left, right }, lane, depth, view, scale, label) {
    this.onUse?.(tile);
    const row = tile.row(lane.id, depth);
    if (row === null || right <= left) return;
    const where = { from: view.from, scale, left, right };
    if (tile.isExact) {
      paintRow(line, row, this.palette, where, label(row));
    } else {
      paintColumns(line, tile, row, this.palette, where);
      for (const run of tile.runs) {
        if (
          run.row !== row ||
          run.end < view.from ||
          run.start > view.to ||
          (run.end - run.start) * scale < LEAST_LABEL
        )
          continue;
        label({ table: tile.table, name: [run.name], id: [-1], start: [run.start] })(
          0,
          (run.start - view.from) * scale,
          (run.end - view.from) * scale,
        );
      }
    }
  }

  #words(labels) {
    const { context, label, width } = this;
    context.save();
    context.beginPath();
    context.rect(label, AXIS, width - label, this.height - AXIS);
    context.clip();
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = color("--ink");
    for (const { row, i, a, b, y, high } of labels) {
      const left = Math.max(a, 0);
      const text = this.#fit(this.word(row, i), Math.min(b, width - label) - left - 8);
      if (text) context.fillText(text, label + left + 4, AXIS + y + high / 2 + 0.5);
    }
    context.restore();
  }

  /** Return the word on an event's bar. */
  word(row, i) {
    const { table } = row;
    const number = row.name[i];
    table.words ??= [];
    table.words[number] ??=
      table.labels?.[number] || this.palette.phases.get(table.names[number])?.label || shortName(table.names[number]);
    return table.words[number];
  }

  #fit(text, room) {
    if (room < 14) return "";
    let known = this.widths.get(text);
    if (known === undefined) {
      if (this.widths.size > 5000) this.widths.clear();
      known = this.context.measureText(text).width;
      this.widths.set(text, known);
    }
    if (known <= room) return text;
    const length = Math.floor((text.length * room) / known) - 1;
    return length >= 2 ? `${text.slice(0, length)}…` : "";
  }

  #lines(view, steps, isByStep, zero) {
    const { context, width, height, label } = this;
    context.fillStyle = color("--surface");
    context.fillRect(0, 0, width, AXIS);
    context.font = AXIS_FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    const tick = (x, text, isStrong) => {
      if (x < label || x > width) return;
      context.fillStyle = color(isStrong ? "--line-2" : "--gridc");
      context.fillRect(Math.round(x), AXIS - 6, 1, height - AXIS + 6);
      context.fillStyle = color("--text-3");
      if (text && x + 4 + context.measureText(text).width <= width) context.fillText(text, x + 4, AXIS / 2);
    };
    if (isByStep && steps.length) {
      let free = -Infinity;
      for (const { number, begin, end } of steps) {
        if (end < view.from || begin > view.to) continue;
        const at = Math.max(this.x(begin, view), label);
        const text = this.canvas.dataset.step ? `${this.canvas.dataset.step} ${number}` : String(number);
        const fits = at >= free;
        tick(at, fits ? text : "", true);
        if (fits) free = at + context.measureText(text).width + 16;
      }
    } else {
      const step = niceStep((view.to - view.from) / Math.max((width - label) / 110, 1));
      for (let at = Math.ceil((view.from - zero) / step); at * step + zero <= view.to; at += 1)
        tick(this.x(at * step + zero, view), axisText(at * step, step), false);
    }
    context.fillStyle = color("--line");
    context.fillRect(0, AXIS - 1, width, 1);
  }

  #names(items, top) {
    const { context, label, width } = this;
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, this.height - AXIS);
    context.clip();
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const item of items) {
      const y = AXIS + item.y - top;
      if (item.type === "group") {
        this.#chevron(2, y + (item.height - 2) / 2, item.isFolded);
        context.font = HEAD_FONT;
        context.fillStyle = color("--text");
        context.fillText(item.group.title, 14, y + (item.height - 2) / 2);
        const end = 14 + context.measureText(item.group.title).width + 10;
        context.font = FONT;
        context.fillStyle = color("--text-3");
        if (item.group.note) context.fillText(item.group.note, end, y + (item.height - 2) / 2);
        continue;
      }
      const middle = y + item.rowHeight / 2;
      context.font = FONT;
      context.fillStyle = color("--text-2");
      if (item.lane.depths > 1) this.#chevron(6, middle, item.isFolded);
      context.fillText(this.#fit(item.lane.title, label - 24), 18, middle);
    }
    context.restore();
  }

  #chevron(x, y, isFolded) {
    const { context } = this;
    context.strokeStyle = color("--text-3");
    context.lineWidth = 1.5;
    context.beginPath();
    if (isFolded) {
      context.moveTo(x + 2, y - 3.5);
      context.lineTo(x + 5.5, y);
      context.lineTo(x + 2, y + 3.5);
    } else {
      context.moveTo(x, y - 1.5);
      context.lineTo(x + 3.5, y + 2);
      context.lineTo(x + 7, y - 1.5);
    }
    context.stroke();
  }

  #outline({ laneKey, depth, begin, end }, items, view, top, token, thick) {
    const item = items.find(({ lane }) => lane?.key === laneKey);
    if (!item || depth >= item.rows || end < view.from || begin > view.to) return;
    const { context, label, width } = this;
    const left = Math.max(this.x(begin, view), label);
    const right = Math.min(Math.max(this.x(end, view), left + 2), width);
    const y = AXIS + item.y - top + depth * (item.rowHeight + 1);
    if (y < AXIS) return;
    context.strokeStyle = color(token);
    context.lineWidth = thick;
    context.strokeRect(left - 0.5, y - 0.5, right - left + 1, item.rowHeight + 1);
  }

  #frame({ from, to }, view) {
    const { context, label, width, height } = this;
    const left = Math.max(this.x(from, view), label);
    const right = Math.min(this.x(to, view), width);
    if (right <= left) return;
    context.globalAlpha = 0.12;
    context.fillStyle = color("--accent-text");
    context.fillRect(left, AXIS, right - left, height - AXIS);
    context.globalAlpha = 1;
    context.strokeStyle = color("--accent-text");
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, AXIS - 2.5, right - left - 1, height - AXIS + 2);
  }

  /**
   * Return what is at a point, or null beside the lanes.
   *
   * @param {number} x
   * @param {number} y
   * @param {{ layout: Layout, view: Stretch, top: number }} shown
   * @returns {Hit | null}
   */
  hit(x, y, { layout, view, top }) {
    if (y < AXIS) return null;
    const [item] = layout.between(y - AXIS + top, y - AXIS + top + 0.01);
    if (!item) return null;
    if (item.type === "group" || x < this.label) return { item };
    const depth = Math.floor((y - AXIS + top - item.y) / (item.rowHeight + 1));
    const { lane } = item;
    if (depth >= item.rows) return { item };
    const time = this.time(x, view);
    const slack = (2 * (view.to - view.from)) / (this.width - this.label);
    const found = { item, laneKey: lane.key, depth, time };
    if (lane.rows) {
      const row = lane.rows[depth];
      const i = row?.at(time, slack) ?? -1;
      return row && i >= 0 ? { ...found, row, i } : found;
    }
    const level = Tiles.level((view.to - view.from) / this.sheet.width);
    for (const { tile } of lane.tiles.cover(lane.block, time - slack, time + slack, level, null)) {
      const row = tile.row(lane.id, depth);
      if (row === null) continue;
      if (typeof row === "number") return { ...found, column: tile.column(row, time) };
      const i = row.at(time, slack);
      if (i >= 0) return { ...found, row, i };
    }
    return found;
  }
}

/** Return the part of a kernel's name that people know it by. */
function shortName(text) {
  const plain = text.replace(/^void /, "");
  const cut = plain.search(/[<(]/);
  const head = cut > 0 ? plain.slice(0, cut) : plain;
  const inner = /^[^<]*\bKernel2?<([\w:]+)/.exec(plain); // cutlass names its kernels in their first argument
  if (inner) return inner[1];
  return head.slice(head.lastIndexOf("::") < 0 || head.startsWith("aten::") ? 0 : head.lastIndexOf("::") + 2) || plain;
}
