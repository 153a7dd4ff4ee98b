/**
 * Paints lanes of spans on a canvas: 2D, one binary search per lane, and no drawing of what falls on a pixel that is taken.
 * Knows nothing of mouse or keys; timeline.js moves its window.
 */

import { color, hatch } from "../charts/colors.js";
import * as numbers from "../charts/numbers.js";
import { laneName } from "../format.js";

/** @import { Lane } from "./lanes.js" */
/** @import { Stretch } from "./timeline.js" */

const LABEL_FONT = "500 11px Inter, system-ui, sans-serif";
const AXIS_FONT = "10.5px Inter, system-ui, sans-serif";
const MIN_LABEL = 26; // pixels; narrower bars carry no word
const AXIS_HEIGHT = 20;

/** `phases` maps a phase's key to { label, token }. `look` is { laneHeight, gap, detailHeight, labelWidth }. */
export class Painter {
  constructor(canvas, phases, look) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.phases = phases;
    this.look = { gap: 4, detailHeight: 0, labelWidth: 104, ...look };
  }

  /** Fit the canvas to its box and the screen's pixels. */
  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    this.width = clientWidth;
    this.height = clientHeight;
    if (
      this.canvas.width !== Math.round(clientWidth * ratio) ||
      this.canvas.height !== Math.round(clientHeight * ratio)
    ) {
      this.canvas.width = Math.round(clientWidth * ratio);
      this.canvas.height = Math.round(clientHeight * ratio);
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** Return where each lane stands: [{ lane, top, height }], with room for its details where `detailHeight` asks for it. */
  layout(lanes) {
    const { laneHeight, gap, detailHeight } = this.look;
    let top = 0;
    return lanes.map((lane) => {
      const depths = detailHeight ? lane.rows.length - 1 : 0;
      const height = laneHeight + depths * (detailHeight + 1);
      const placed = { lane, top, height };
      top += height + gap;
      return placed;
    });
  }

  /** Return the height that lanes and axis need. */
  needed(lanes) {
    const last = this.layout(lanes).at(-1);
    return (last ? last.top + last.height : 0) + AXIS_HEIGHT;
  }

  x(time, window) {
    const { labelWidth } = this.look;
    return labelWidth + ((time - window.from) / (window.to - window.from)) * (this.width - labelWidth);
  }

  time(x, window) {
    const { labelWidth } = this.look;
    return window.from + ((x - labelWidth) / (this.width - labelWidth)) * (window.to - window.from);
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
    const { context, width, height } = this;
    const { labelWidth, laneHeight, detailHeight } = this.look;
    context.clearRect(0, 0, width, height);
    const waiting = hatch(context);
    const placed = this.layout(lanes);
    context.save();
    for (const { lane, top } of placed) {
      context.fillStyle = color("--text");
      context.font = "12px Inter, system-ui, sans-serif";
      context.textBaseline = "middle";
      context.textAlign = "left";
      if (laneHeight >= 14) context.fillText(laneName(lane), 0, top + laneHeight / 2, labelWidth - 8);
      const from = Math.max(this.x(extent.from, window), labelWidth);
      const to = Math.min(this.x(Math.min(extent.to, window.to), window), width);
      if (to > from) {
        context.fillStyle = waiting;
        context.fillRect(from, top, to - from, laneHeight);
      }
    }
    const bottom = placed.length ? placed.at(-1).top + placed.at(-1).height : 0;
    this.#axis(window, bottom, zero);
    for (const { lane, top } of placed) {
      this.#row(lane.rows[0], top, laneHeight, window);
      for (let depth = 1; detailHeight && depth < lane.rows.length; depth += 1) {
        const below = top + laneHeight + 1 + (depth - 1) * (detailHeight + 1);
        if (lane.rows[depth]) this.#row(lane.rows[depth], below, detailHeight, window, true);
      }
    }
    if (now !== null) this.#now(now, window, bottom);
    if (selection) this.#frame(selection, window, bottom);
    context.restore();
  }

  #row(row, top, height, window, isDetail = false) {
    const { context, width } = this;
    const { labelWidth } = this.look;
    const scale = (width - labelWidth) / (window.to - window.from);
    let free = -1; // first pixel that nothing was drawn on
    for (let i = row.firstAfter(window.from); i < row.length && row.start[i] < window.to; i += 1) {
      let left = labelWidth + (row.start[i] - window.from) * scale;
      let right = labelWidth + (row.end[i] - window.from) * scale;
      if (right < free) continue;
      left = Math.max(left, labelWidth, free);
      right = Math.min(Math.max(right - (right - left > 3 ? 1 : 0), left + 1), width);
      if (left >= width) break;
      context.fillStyle = color(row.isDead[i] ? "--dead" : `--${this.#token(row.phase[i], isDetail)}`);
      if (right - left > 8) roundBar(context, left, top, right - left, height);
      else context.fillRect(left, top, right - left, height);
      free = Math.floor(right) + (right - left > 3 ? 0 : 1);
      if (right - left >= MIN_LABEL && height >= 12)
        this.#label(this.text(row, i), left, right, top + height / 2, height);
    }
  }

  #token(phase, isDetail) {
    if (isDetail && phase === "update") return "phase-update-shade";
    return this.phases.get(phase)?.token ?? "phase-advantages";
  }

  /** Return the word on a bar: its own name, or its phase's. */
  text(row, i) {
    return row.name[i] || this.phases.get(row.phase[i])?.label || row.phase[i];
  }

  #label(text, left, right, middle, height) {
    const { context } = this;
    context.font = height < 14 ? LABEL_FONT.replace("11px", "10px") : LABEL_FONT;
    if (context.measureText(text).width > right - left - 8) return;
    context.fillStyle = color("--ink");
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, left + 5, middle + 0.5);
  }

  #axis(window, top, zero) {
    const { context, width } = this;
    const { labelWidth } = this.look;
    const step = niceStep((window.to - window.from) / Math.max((width - labelWidth) / 110, 1));
    context.font = AXIS_FONT;
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    for (let at = Math.ceil((window.from - zero) / step) * step; at + zero <= window.to; at += step) {
      const x = this.x(at + zero, window);
      context.fillStyle = color("--gridc");
      context.fillRect(x, 0, 1, top);
      context.fillStyle = color("--text-3");
      const text = axisText(at, step);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(x, labelWidth + half), width - half), top + 14);
    }
  }

  #now(now, window, bottom) {
    const { context, width } = this;
    const x = this.x(now, window);
    if (x < this.look.labelWidth || x > width - 1) return;
    context.fillStyle = color("--text-2");
    context.fillRect(x, 0, 1.5, bottom);
    context.font = AXIS_FONT;
    context.fillStyle = color("--text-3");
    context.textBaseline = "middle";
    context.textAlign = "left";
    const text = this.canvas.dataset.now ?? "now";
    if (x + 6 + context.measureText(text).width < width) context.fillText(text, x + 6, 8);
  }

  #frame(selection, window, bottom) {
    const { context } = this;
    const left = Math.max(this.x(selection.from, window), this.look.labelWidth);
    const right = Math.min(this.x(selection.to, window), this.width);
    if (right <= left) return;
    context.globalAlpha = 0.1;
    context.fillStyle = color("--accent-text");
    context.fillRect(left, 0, right - left, bottom);
    context.globalAlpha = 1;
    context.strokeStyle = color("--accent-text");
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, 0.5, right - left - 1, bottom - 1);
  }

  /** Return { lane, row, index, depth } of the span at a point of the canvas, or null. */
  hit(x, y, lanes, window) {
    const { laneHeight, detailHeight, labelWidth } = this.look;
    if (x < labelWidth) return null;
    const placed = this.layout(lanes).find(({ top, height }) => y >= top && y < top + height);
    if (!placed) return null;
    const depth =
      y < placed.top + laneHeight || !detailHeight
        ? 0
        : 1 + Math.floor((y - placed.top - laneHeight) / (detailHeight + 1));
    const row = placed.lane.rows[depth];
    if (!row) return null;
    const time = this.time(x, window);
    const slack = ((window.to - window.from) / (this.width - labelWidth)) * 2;
    const index = row.firstAfter(time - slack);
    if (index >= row.length || row.start[index] > time + slack)
      return { lane: placed.lane, row: null, index: -1, depth };
    return { lane: placed.lane, row, index, depth };
  }
}

function roundBar(context, x, y, width, height) {
  context.beginPath();
  context.roundRect(x, y, width, height, 2);
  context.fill();
}

/** Return the smallest of 1, 2, 5 × 10ⁿ (and whole minutes, hours above a minute) that is at least `least` seconds. */
function niceStep(least) {
  for (const minutes of [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400]) {
    if (least > 30 && least <= minutes) return minutes;
  }
  if (least > 30) return Math.ceil(least / 86400) * 86400;
  const power = 10 ** Math.floor(Math.log10(least));
  return ([1, 2, 5].find((factor) => factor * power >= least * 0.999) ?? 10) * power;
}

function axisText(at, step) {
  if (step >= 60) return at === 0 ? "0" : numbers.duration(at);
  if (step >= 1) return `${Math.round(at)} s`;
  if (step >= 1e-3) return `${at.toFixed(Math.min(3, Math.ceil(-Math.log10(step))))} s`;
  return numbers.duration(at);
}
