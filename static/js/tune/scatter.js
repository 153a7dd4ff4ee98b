/** One dot a run, over any two columns and colored by a third. A dragged rectangle keeps the runs in it. */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { color, faded, onTheme } from "../charts/colors.js";
import { fill, gettext } from "../format.js";

const HEIGHT = 300;
const RADIUS = 5; // CSS pixels
const MOST_TICKS = 8;
const REACH = 24; // CSS pixels from the pointer to a dot
const OUT = 0.16; // opacity of runs outside of what was brushed
const RAMP = ["--run-7", "--run-1"]; // from the least to the greatest of the column that colors
const FONT = '10.5px Inter, "Inter", system-ui, sans-serif';

/** @import { Axis, Brush, SweepRun } from "./axis.js" */
/** @typedef {{ x: Axis, y: Axis, tint: Axis | null, runs: SweepRun[], all: Map<string, Axis>, brush: Brush }} ScatterData */
/** @typedef {{ run: SweepRun, x: number, y: number, ink: string, isIn: boolean }} Dot */

export class Scatter {
  /**
   * @param {HTMLElement} place
   * @param {HTMLElement} caption
   * @param {(ranges: [id: string, range: [number, number]][]) => void} onBrush
   */
  constructor(place, caption, onBrush) {
    this.place = place;
    this.caption = caption;
    this.onBrush = onBrush;
    /** @type {ScatterData | null} */
    this.shown = null;
    /** @type {uPlot | null} */
    this.uplot = null;
    /** @type {Dot[]} */
    this.dots = [];
    new ResizeObserver(() => {
      if (this.uplot && place.clientWidth) this.uplot.setSize({ width: place.clientWidth, height: HEIGHT });
    }).observe(place);
    onTheme(() => this.draw());
  }

  show(/** @type {ScatterData} */ shown) {
    this.shown = shown;
    this.draw();
  }

  draw() {
    if (!this.shown) return;
    const { x, y, tint, runs, all, brush } = this.shown;
    this.dots = runs
      .map((run) => ({
        run,
        x: x.number(run),
        y: y.number(run),
        ink: this.#ink(run, tint),
        isIn: brush.holds(run, all),
      }))
      .filter((dot) => Number.isFinite(dot.x) && Number.isFinite(dot.y))
      .sort((a, b) => a.x - b.x);
    this.uplot?.destroy();
    this.uplot = null;
    this.place.replaceChildren();
    this.#tell(null);
    if (!this.dots.length) return;
    /** @type {uPlot.AlignedData} */
    const data = [this.dots.map((dot) => dot.x), this.dots.map((dot) => dot.y)];
    this.uplot = new uPlot(this.#options(x, y), data, this.place);
  }

  /** Return a run's color: its own, or where it stands on the column that colors. */
  #ink(/** @type {SweepRun} */ run, /** @type {Axis | null} */ tint) {
    if (!tint) return color(`--run-${run.color}`);
    const number = tint.number(run);
    if (!Number.isFinite(number)) return color("--text-3");
    return mixed(color(RAMP[0]), color(RAMP[1]), tint.shareOf(number));
  }

  /** @returns {uPlot.Options} */
  #options(/** @type {Axis} */ x, /** @type {Axis} */ y) {
    const line = {
      stroke: () => color("--text-3"),
      font: FONT,
      ticks: { show: false },
      grid: { stroke: () => color("--gridc"), width: 1 },
    };
    return {
      width: this.place.clientWidth || 400,
      height: HEIGHT,
      padding: [10, 16, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: true, y: true, setScale: false }, points: { show: false } },
      scales: {
        x: { time: false, distr: x.isLog ? 3 : 1, range: () => widened(x) },
        y: { distr: y.isLog ? 3 : 1, range: () => widened(y) },
      },
      axes: [
        { ...line, size: 38, gap: 3, label: x.column.label, labelSize: 16, labelFont: FONT, ...ticks(x) },
        { ...line, size: 58, gap: 4, label: y.column.label, labelSize: 16, labelFont: FONT, ...ticks(y) },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        draw: [(u) => this.#dots(u)],
        setCursor: [(u) => this.#tell(nearest(u, this.dots))],
        setSelect: [(u) => this.#selected(u)],
      },
    };
  }

  #selected(/** @type {uPlot} */ u) {
    const { left, top, width, height } = u.select;
    if (!this.shown || (width < 4 && height < 4)) return;
    const ends = (/** @type {string} */ scale, /** @type {number} */ from, /** @type {number} */ length) =>
      /** @type {[number, number]} */ ([u.posToVal(from, scale), u.posToVal(from + length, scale)]);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onBrush([
      [this.shown.x.column.id, ends("x", left, width)],
      [this.shown.y.column.id, ends("y", top, height)],
    ]);
  }

  #dots(/** @type {uPlot} */ u) {
    const { ctx } = u;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    for (const dot of this.dots.toSorted((a, b) => Number(a.isIn) - Number(b.isIn))) {
      ctx.beginPath();
      ctx.arc(u.valToPos(dot.x, "x", true), u.valToPos(dot.y, "y", true), RADIUS * ratio, 0, 2 * Math.PI);
      ctx.fillStyle = dot.isIn ? dot.ink : faded(dot.ink, OUT);
      ctx.fill();
      ctx.lineWidth = 1.5 * ratio;
      ctx.strokeStyle = color("--surface");
      ctx.stroke();
    }
    ctx.restore();
  }

  #tell(/** @type {Dot | null} */ dot) {
    if (!this.shown) return;
    const { x, y, tint } = this.shown;
    const words = { x: x.column.label, y: y.column.label, color: tint?.column.label ?? "" };
    if (dot)
      this.caption.textContent = `${dot.run.name}: ${y.text(dot.y)}${tint ? `, ${tint.column.label} ${tint.text(tint.number(dot.run))}` : ""}`;
    else if (!this.dots.length)
      this.caption.textContent = fill(gettext("No run has a value of both %(x)s and %(y)s yet."), words);
    else if (tint && !tint.isEmpty)
      this.caption.textContent = fill(
        gettext(
          "%(y)s over %(x)s; blue to orange: %(color)s from %(low)s to %(high)s. Drag to keep the runs in a rectangle.",
        ),
        { ...words, low: tint.text(tint.range[0]), high: tint.text(tint.range[1]) },
      );
    else this.caption.textContent = fill(gettext("%(y)s over %(x)s. Drag to keep the runs in a rectangle."), words);
  }
}

/**
 * Return the range of an axis with room for the dots at its ends.
 *
 * @returns {[number, number]}
 */
function widened(/** @type {Axis} */ axis) {
  if (axis.column.words.length) return [-0.5, axis.column.words.length - 0.5];
  return [axis.numberAt(-0.08), axis.numberAt(1.08)];
}

/** The values themselves where they are few, as in a grid. */
function ticks(/** @type {Axis} */ axis) {
  const { column, distinct, isLog } = axis;
  const values = (_u, splits) => splits.map((value) => (value === null ? "" : axis.text(value)));
  if (column.words.length) return { splits: () => column.words.map((_word, i) => i), values };
  if (column.isKnob && distinct.length <= MOST_TICKS)
    return { splits: () => distinct, values, filter: (_u, splits) => splits };
  if (isLog) return { values, filter: (_u, splits) => splits.map((value) => (isRound(value) ? value : null)) };
  return { values };
}

/** @returns {Dot | null} */
function nearest(/** @type {uPlot} */ u, /** @type {Dot[]} */ dots) {
  const { left, top } = u.cursor;
  if (left === undefined || top === undefined || left < 0) return null;
  /** @type {Dot | null} */
  let found = null;
  let least = REACH;
  for (const dot of dots) {
    const distance = Math.hypot(u.valToPos(dot.x, "x") - left, u.valToPos(dot.y, "y") - top);
    if (distance < least) [found, least] = [dot, distance];
  }
  return found;
}

/** Return a color between two of the form #rrggbb. */
function mixed(/** @type {string} */ from, /** @type {string} */ to, /** @type {number} */ share) {
  const part = (/** @type {string} */ hex, /** @type {number} */ at) => Number.parseInt(hex.slice(at, at + 2), 16);
  const parts = [1, 3, 5].map((at) => Math.round(part(from, at) + share * (part(to, at) - part(from, at))));
  return `#${parts.map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}

/** 1, 2 and 5 of each decade: what a log axis writes out. */
function isRound(/** @type {number} */ value) {
  const mantissa = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
  return [1, 2, 5].some((wanted) => Math.abs(mantissa - wanted) < 1e-6);
}
