/**
 * Paints lanes of phases: 2D, one binary search per lane, and no drawing of what falls on a pixel that is taken.
 * Knows nothing of mouse or keys; timeline.js moves its window.
 */

import { color } from "../charts/colors.js";
import * as numbers from "../charts/numbers.js";
import { laneName } from "../format.js";
import { depthAt, itemsBetween, rowTop } from "../timeline/layout.js";
import { Painter } from "../timeline/painter.js";

/** @import { Lane, SpanRow } from "../timeline/lanes.js" */
/** @import { LaneItem } from "../timeline/layout.js" */
/** @import { Stretch } from "../timeline/window.js" */
/** @typedef {Map<string, { key: string, label: string, token: string }>} Phases by key */
/** @typedef {{ laneHeight: number, gap: number, detailHeight: number }} Look in pixels; without a detailHeight only depth 0 is shown */
/** @typedef {LaneItem & { lane: Lane }} Placed */

const LABEL_FONT = "500 11px Inter, system-ui, sans-serif";
const SMALL_FONT = "500 10px Inter, system-ui, sans-serif";
const AXIS_FONT = "10.5px Inter, system-ui, sans-serif";
const MIN_LABEL = 26; // pixels; narrower bars carry no word
const AXIS_HEIGHT = 20;
const TICKS = 110; // pixels apart

export class PhasePainter extends Painter {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Phases} phases
   * @param {Partial<Look> & { labelWidth: number }} look
   */
  constructor(canvas, phases, { labelWidth, ...look }) {
    super(canvas, labelWidth, 1);
    this.phases = phases;
    /** @type {Look} */
    this.look = { laneHeight: 8, gap: 4, detailHeight: 0, ...look };
  }

  /**
   * Return where each lane stands, with room for its details where `detailHeight` asks for it.
   *
   * @returns {Placed[]}
   */
  layout(/** @type {Lane[]} */ lanes) {
    const { laneHeight: rowHeight, gap, detailHeight } = this.look;
    let y = 0;
    return lanes.map((lane) => {
      const depths = detailHeight ? lane.rows.length - 1 : 0;
      const placed = { lane, y, height: rowHeight + depths * (detailHeight + 1), rowHeight, detailHeight };
      y += placed.height + gap;
      return placed;
    });
  }

  #bottom(/** @type {Placed[]} */ placed) {
    const last = placed.at(-1);
    return last ? last.y + last.height : 0;
  }

  /** Return the height that lanes and axis need. */
  needed(/** @type {Lane[]} */ lanes) {
    return this.#bottom(this.layout(lanes)) + AXIS_HEIGHT;
  }

  /**
   * Paint lanes.
   *
   * @param {object} shown
   * @param {Lane[]} shown.lanes
   * @param {Stretch} shown.window
   * @param {Stretch} shown.extent what has happened; after its end there is nothing yet
   * @param {number | null} [shown.now]
   * @param {Stretch | null} [shown.selection]
   * @param {number} [shown.zero] of the axis
   */
  paint({ lanes, window, extent, now = null, selection = null, zero = 0 }) {
    const { context, width, height, label } = this;
    const { laneHeight, detailHeight } = this.look;
    context.clearRect(0, 0, width, height);
    const placed = this.layout(lanes);
    context.save();
    for (const { lane, y } of placed) {
      context.fillStyle = color("--text");
      context.font = "12px Inter, system-ui, sans-serif";
      context.textBaseline = "middle";
      context.textAlign = "left";
      if (laneHeight >= 14) context.fillText(laneName(lane), 0, y + laneHeight / 2, label - 8);
      const from = Math.max(this.x(extent.from, window), label);
      const to = Math.min(this.x(Math.min(extent.to, window.to), window), width);
      if (to > from) {
        context.fillStyle = this.waiting;
        context.fillRect(from, y, to - from, laneHeight);
      }
    }
    const bottom = this.#bottom(placed);
    this.#axis(window, bottom, zero);
    for (const item of placed) {
      const shown = detailHeight ? item.lane.rows : item.lane.rows.slice(0, 1);
      for (const depth of shown.keys()) this.#row(item, depth, window);
    }
    if (now !== null) this.#now(now, window, bottom);
    if (selection) this.frame(selection, window, { top: 0, bottom, alpha: 0.1 });
    context.restore();
  }

  #row(/** @type {Placed} */ item, /** @type {number} */ depth, /** @type {Stretch} */ window) {
    const row = item.lane.rows[depth];
    if (!row) return;
    const [top, height] = [rowTop(item, depth), depth ? item.detailHeight : item.rowHeight];
    const { context, width, label } = this;
    const scale = (width - label) / (window.to - window.from);
    let free = -1; // first pixel that nothing was drawn on
    for (let i = row.firstAfter(window.from); i < row.length && row.start[i] < window.to; i += 1) {
      let left = label + (row.start[i] - window.from) * scale;
      let right = label + (row.end[i] - window.from) * scale;
      if (right < free) continue;
      left = Math.max(left, label, free);
      right = Math.min(Math.max(right - (right - left > 3 ? 1 : 0), left + 1), width);
      if (left >= width) break;
      context.fillStyle = color(row.isDead[i] ? "--dead" : `--${this.#token(row.phase[i], depth > 0)}`);
      if (right - left > 8) {
        context.beginPath();
        context.roundRect(left, top, right - left, height, 2);
        context.fill();
      } else {
        context.fillRect(left, top, right - left, height);
      }
      free = Math.floor(right) + (right - left > 3 ? 0 : 1);
      if (right - left < MIN_LABEL || height < 12) continue;
      context.font = height < 14 ? SMALL_FONT : LABEL_FONT;
      const text = this.text(row, i);
      if (context.measureText(text).width > right - left - 8) continue;
      context.fillStyle = color("--ink");
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.fillText(text, left + 5, top + height / 2 + 0.5);
    }
  }

  #token(/** @type {string} */ phase, /** @type {boolean} */ isDetail) {
    if (isDetail && phase === "update") return "phase-update-shade";
    return this.phases.get(phase)?.token ?? "phase-advantages";
  }

  /** Return the word on a bar: its own name, or its phase's. */
  text(/** @type {SpanRow} */ row, /** @type {number} */ i) {
    return row.name[i] || this.phases.get(row.phase[i])?.label || row.phase[i];
  }

  #axis(/** @type {Stretch} */ window, /** @type {number} */ top, /** @type {number} */ zero) {
    const { context, width, label } = this;
    const { step, at } = this.axis(window, zero, TICKS);
    context.font = AXIS_FONT;
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    for (const time of at) {
      const x = this.x(time + zero, window);
      context.fillStyle = color("--gridc");
      context.fillRect(x, 0, 1, top);
      context.fillStyle = color("--text-3");
      const text = axisText(time, step);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(x, label + half), width - half), top + 14);
    }
  }

  #now(/** @type {number} */ now, /** @type {Stretch} */ window, /** @type {number} */ bottom) {
    const { context, width } = this;
    const x = this.x(now, window);
    if (x < this.label || x > width - 1) return;
    context.fillStyle = color("--text-2");
    context.fillRect(x, 0, 1.5, bottom);
    context.font = AXIS_FONT;
    context.fillStyle = color("--text-3");
    context.textBaseline = "middle";
    context.textAlign = "left";
    const text = this.canvas.dataset.now ?? "now";
    if (x + 6 + context.measureText(text).width < width) context.fillText(text, x + 6, 8);
  }

  /**
   * Return { lane, row, index } of the span at a point of the canvas; between spans `row` is null, beside lanes all is.
   *
   * @param {number} x
   * @param {number} y
   * @param {Lane[]} lanes
   * @param {Stretch} window
   */
  hit(x, y, lanes, window) {
    const [item] = x < this.label ? [] : itemsBetween(this.layout(lanes), y);
    const row = item?.lane.rows[depthAt(item, y)];
    if (!row) return null;
    const index = row.at(this.time(x, window), this.slack(window));
    return { lane: item.lane, row: index < 0 ? null : row, index };
  }
}

function axisText(/** @type {number} */ at, /** @type {number} */ step) {
  if (step >= 1) return step >= 60 && at === 0 ? "0" : numbers.exactly(Math.round(at));
  if (step >= 1e-3) return `${at.toFixed(Math.min(3, Math.ceil(-Math.log10(step))))} s`;
  return numbers.duration(at);
}
