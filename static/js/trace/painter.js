/** Draws the timeline of a trace on a canvas: bars as one block of pixels (sheet.js); words, axis and frames on top. */

import { color } from "../charts/colors.js";
import { fill, ngettext } from "../format.js";
import { depthAt, itemsBetween, rowTop } from "../timeline/layout.js";
import { Painter } from "../timeline/painter.js";
import { drawArrows } from "./arrows.js";
import { HANDLE } from "./layout.js";
import { Sheet } from "./sheet.js";
import { Tiles } from "./tiles.js";
import { axisText, SECOND } from "./times.js";

export const AXIS = 24;
const FONT = '11px Inter, "Inter", system-ui, sans-serif';
const HEAD_FONT = '600 12px Inter, "Inter", system-ui, sans-serif';
const AXIS_FONT = '10.5px Inter, "Inter", system-ui, sans-serif';
const LABEL = 168; // pixels for the names of lanes
const NARROW_LABEL = 92; // of a narrow canvas
const TICKS = 110; // pixels apart
const MOST_WORDS = 500;
const PIN = 14; // pixels at the right end of a lane's name

/** @import { Stretch } from "../timeline/window.js" */
/** @import { Arrow } from "./arrows.js" */
/** @import { Step } from "./facts.js" */
/** @import { Body, Head, Layout } from "./layout.js" */
/** @import { Palette } from "./palette.js" */
/** @import { EventRow } from "./rows.js" */
/** @import { Named, Note } from "./sheet.js" */
/** @import { Tile } from "./tile.js" */
/** @import { TraceEvent } from "./view.js" */
/** @typedef {{ item: Head | Body, part: "name" | "pin" | "handle", laneKey?: undefined, row?: undefined, column?: undefined }} HeadHit a head, or a lane's name, pin or handle */
/** @typedef {{ item: Body, laneKey: string, depth: number, time: number }} Place where in a lane */
/** @typedef {Place & { part?: undefined, row?: undefined, column?: ReturnType<Tile["column"]> }} LaneHit no event, or a column of a view from afar */
/** @typedef {Place & { part?: undefined, row: EventRow, i: number, column?: undefined }} EventHit the event number `i` of a row */
/** @typedef {HeadHit | LaneHit | EventHit} Hit what is at a point */
/** @typedef {{ row: Named, i: number, text: string, start: number, isRun: boolean, a: number, b: number, y: number, high: number }} Word on a bar from a to b */
/** @typedef {{ layout: Layout, view: Stretch, top: number, selection: Stretch | null, chosen: TraceEvent | null, hover: TraceEvent | null, pointed: string, arrows: Arrow[], steps: Step[], isByStep: boolean, zero: number }} Shown */

export class TracePainter extends Painter {
  /** @type {Map<string, number>} of words, in pixels */
  widths = new Map();

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Palette} palette
   * @param {(tile: Tile) => void} onUse
   */
  constructor(canvas, palette, onUse) {
    super(canvas, LABEL, SECOND, { alpha: false });
    this.palette = palette;
    this.sheet = new Sheet(palette, onUse);
  }

  resize() {
    if (!super.resize()) return false;
    this.label = this.width < 600 ? NARROW_LABEL : LABEL;
    this.sheet.resize(this.width - this.label, this.height - AXIS, this.ratio);
    return true;
  }

  /** Paint what is in sight and return the tiles that are missing. */
  paint(/** @type {Shown} */ shown) {
    const { context, width, height } = this;
    const { layout, view, top, selection, chosen, hover, pointed } = shown;
    context.fillStyle = color("--surface");
    context.fillRect(0, 0, width, height);
    const items = itemsBetween(layout.items, top, top + height - AXIS).map((item) => ({
      ...item,
      y: AXIS + item.y - top,
    }));
    this.#backs(items);
    this.sheet.begin(view);
    const words = this.#bars(items);
    const missing = this.sheet.end();
    context.drawImage(this.sheet.canvas, this.label, AXIS, width - this.label, height - AXIS);
    this.#lines(shown);
    this.#words(words);
    if (hover) this.#outline(hover, items, view, 1);
    if (chosen) this.#outline(chosen, items, view, 2);
    drawArrows(context, shown.arrows, {
      layout,
      view,
      xOf: (time) => this.x(time, view),
      yOf: (at) => AXIS + at - top,
      left: this.label,
      top: AXIS,
      width,
      height,
    });
    if (selection) this.frame(selection, view, { top: AXIS, bottom: height, alpha: 0.12, rise: 3 });
    this.#handles(items);
    this.#names(items, pointed);
    return missing;
  }

  #backs(/** @type {(Head | Body)[]} */ items) {
    const { context, width, label } = this;
    for (const item of items) {
      if (item.type === "group") {
        context.fillStyle = color("--surface-2");
        context.fillRect(0, item.y, width, item.height - 2);
        continue;
      }
      const isWaiting = item.lane.kind === "phase" || item.lane.kind === "stream";
      context.fillStyle = isWaiting ? this.waiting : color("--trace-lane");
      const high = isWaiting ? item.rowHeight : item.rows * (item.rowHeight + 1) - 1;
      context.fillRect(label, item.y, width - label, high);
    }
  }

  /** Paint the bars of all lanes; returns the words that belong on them. */
  #bars(/** @type {(Head | Body)[]} */ items) {
    const { ratio } = this;
    /** @type {Word[]} */
    const words = [];
    for (const item of items) {
      if (item.type !== "lane") continue;
      for (let depth = 0; depth < item.rows; depth += 1) {
        const y = rowTop(item, depth);
        /** @type {Word | null} */
        let before = null;
        /** @type {Note} */
        const note = (row, i, left, right, isRun) => {
          const [a, b, start] = [left / ratio, right / ratio, row.start[i]];
          const text = row.table.names[row.name[i]];
          if (before?.text === text && a < before.b + 1 && (isRun || before.isRun || before.start === start)) {
            before.b = Math.max(before.b, b); // it goes on in the next tile
          } else if (words.length < MOST_WORDS) {
            before = { row, i, text, start, isRun, a, b, y, high: item.rowHeight };
            words.push(before);
          }
        };
        this.sheet.row(item.lane, depth, y - AXIS, item.rowHeight, note);
      }
    }
    return words;
  }

  #words(/** @type {Word[]} */ words) {
    const { context, label, width } = this;
    context.save();
    context.beginPath();
    context.rect(label, AXIS, width - label, this.height - AXIS);
    context.clip();
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = color("--ink");
    for (const { row, i, a, b, y, high } of words) {
      const left = Math.max(a, 0);
      const text = this.#fit(this.#word(row, i), Math.min(b, width - label) - left - 8);
      if (text) context.fillText(text, label + left + 4, y + high / 2 + 0.5);
    }
    context.restore();
  }

  /** Return the word on an event's bar. */
  #word(/** @type {Named} */ row, /** @type {number} */ i) {
    const { table } = row;
    const number = row.name[i];
    table.words ??= [];
    table.words[number] ??=
      table.labels?.[number] || this.palette.phases.get(table.names[number])?.label || table.names[number];
    return table.words[number];
  }

  #fit(/** @type {string} */ text, /** @type {number} */ room) {
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

  /** Draw the axis, in time or in steps. */
  #lines(/** @type {Shown} */ { view, steps, isByStep, zero }) {
    const { context, width, height, label } = this;
    context.fillStyle = color("--surface");
    context.fillRect(0, 0, width, AXIS);
    context.font = AXIS_FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    const tick = (/** @type {number} */ x, /** @type {string} */ text, /** @type {boolean} */ isStrong) => {
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
      const { step, at } = this.axis(view, zero, TICKS);
      for (const time of at) tick(this.x(time + zero, view), axisText(time, step), false);
    }
    context.fillStyle = color("--line");
    context.fillRect(0, AXIS - 1, width, 1);
  }

  /** Say at the lower edge of a lane how many rows there are more. */
  #handles(/** @type {(Head | Body)[]} */ items) {
    const { context, label, width } = this;
    context.font = AXIS_FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const item of items) {
      if (item.type !== "lane" || !item.more) continue;
      const top = handleTop(item);
      if (top < AXIS) continue;
      context.fillStyle = color("--surface-2");
      context.fillRect(label, top, width - label, HANDLE - 1);
      this.#chevron(label + 6, top + HANDLE / 2 - 1, false, item.more < 0);
      context.fillStyle = color("--text-2");
      const n = Math.abs(item.more);
      const text =
        item.more > 0
          ? ngettext("%(n)s more row", "%(n)s more rows", n)
          : ngettext("hide %(n)s row", "hide %(n)s rows", n);
      context.fillText(fill(text, { n }), label + 18, top + HANDLE / 2);
    }
  }

  #names(/** @type {(Head | Body)[]} */ items, /** @type {string} */ pointed) {
    const { context, label, width } = this;
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, this.height - AXIS);
    context.clip();
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const item of items) {
      const middle = item.y + (item.type === "group" ? item.height - 2 : item.rowHeight) / 2;
      if (item.type === "group") {
        this.#chevron(2, middle, item.isFolded);
        context.font = HEAD_FONT;
        context.fillStyle = color("--text");
        context.fillText(item.group.title, 14, middle);
        const end = 14 + context.measureText(item.group.title).width + 10;
        context.font = FONT;
        context.fillStyle = color("--text-3");
        if (item.group.note) context.fillText(item.group.note, end, middle);
        continue;
      }
      context.font = FONT;
      context.fillStyle = color("--text-2");
      if (item.lane.depths > 1) this.#chevron(6, middle, item.isFolded);
      const hasPin = item.isPinned || item.lane.key === pointed;
      context.fillText(this.#fit(item.title, label - (hasPin ? 24 + PIN : 24)), 18, middle);
      if (hasPin) this.#pin(label - PIN / 2 - 3, middle, item.isPinned);
    }
    context.restore();
  }

  /** Draw a pin, filled where the lane is pinned. */
  #pin(/** @type {number} */ x, /** @type {number} */ y, /** @type {boolean} */ isPinned) {
    const { context } = this;
    context.strokeStyle = context.fillStyle = color(isPinned ? "--accent-text" : "--text-3");
    context.lineWidth = 1.2;
    context.beginPath();
    context.arc(x, y - 2, 2.6, 0, 2 * Math.PI);
    if (isPinned) context.fill();
    context.moveTo(x, y + 0.6);
    context.lineTo(x, y + 5.5);
    context.stroke();
  }

  #chevron(
    /** @type {number} */ x,
    /** @type {number} */ y,
    /** @type {boolean} */ isFolded,
    /** @type {boolean} */ isUp = false,
  ) {
    const { context } = this;
    context.strokeStyle = color("--text-3");
    context.lineWidth = 1.5;
    context.beginPath();
    if (isUp) {
      context.moveTo(x, y + 2);
      context.lineTo(x + 3.5, y - 1.5);
      context.lineTo(x + 7, y + 2);
    } else if (isFolded) {
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

  /**
   * Draw a line around an event.
   *
   * @param {TraceEvent} event
   * @param {(Head | Body)[]} items
   * @param {Stretch} view
   * @param {number} thick pixels
   */
  #outline({ laneKey, depth, begin, end }, items, view, thick) {
    const item = items.find(({ lane }) => lane?.key === laneKey);
    if (item?.type !== "lane" || depth >= item.rows || end < view.from || begin > view.to) return;
    const { context, label, width } = this;
    const left = Math.max(this.x(begin, view), label);
    const right = Math.min(Math.max(this.x(end, view), left + 2), width);
    const y = rowTop(item, depth);
    if (y < AXIS) return;
    context.strokeStyle = color("--text");
    context.lineWidth = thick;
    context.strokeRect(left - 0.5, y - 0.5, right - left + 1, item.rowHeight + 1);
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
    const below = y - AXIS + top;
    const [item] = itemsBetween(layout.items, below);
    if (!item) return null;
    if (item.type === "group") return { item, part: "name" };
    if (item.more && below >= handleTop(item)) return { item, part: "handle" };
    if (x < this.label) return { item, part: x >= this.label - PIN - 4 ? "pin" : "name" };
    const depth = depthAt(item, below);
    const { lane } = item;
    if (depth >= item.rows) return { item, part: "name" };
    const time = this.time(x, view);
    const slack = this.slack(view);
    const found = { item, laneKey: lane.key, depth, time };
    if (lane.rows) {
      const row = lane.rows[depth];
      const i = row?.at(time, slack) ?? -1;
      return row && i >= 0 ? { ...found, row, i } : found;
    }
    const level = Tiles.level((view.to - view.from) / this.sheet.canvas.width);
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

/** Return where the handle below a lane's rows begins. */
const handleTop = (/** @type {Body} */ { y, rows, rowHeight }) => y + rows * (rowHeight + 1);
