/** What all charts of a page share. */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { onTheme } from "./colors.js";

/** @import { Axis } from "./axes.js" */
/** @import { Chart } from "./chart.js" */
/** @import { Mark, Zoom } from "./plot" */
/** @import { Smoothing } from "./smoothing.js" */

/**
 * @typedef {object} ViewOptions
 * @property {Record<string, Axis>} axes that x may be
 * @property {string} axis one of them
 * @property {Smoothing} smoothing
 * @property {boolean} isLog
 * @property {boolean} [leavesOut] the y axis leaves outliers out
 * @property {Zoom | null} zoom
 * @property {number} end the last step there will be
 * @property {boolean} [showsDead]
 */

/** Smoothing, x axis, zoom, y scale, marks, dead branches or not. Charts redraw when it changes. */
export class ChartView {
  /** @param {ViewOptions} options */
  constructor({ axes, axis, smoothing, isLog, leavesOut = false, zoom, end, showsDead = false }) {
    this.axes = axes;
    this.axis = axis;
    this.smoothing = smoothing;
    this.isLog = isLog;
    this.leavesOut = leavesOut;
    this.end = end;
    this.showsDead = showsDead;
    this.zoom = zoom && this.#widened(zoom);
    this.missing = ""; // what is said of runs that have not measured the x axis
    /** @type {Mark[]} */
    this.marks = [];
    /** @type {Set<Chart>} */
    this.charts = new Set();
    /** @type {Set<string>} */
    this.named = new Set(); // what the legend names
    this.sync = uPlot.sync("run");
    /** @type {(zoom: Zoom | null) => void} */
    this.onZoom = () => {};
    /** @type {((point: { x: number, axis: string, chart: Chart }) => void) | null} a click on a point */
    this.onPick = null;
    /** @type {((point: { x: number, axis: string }) => void) | null} a click on the x axis, in the same words */
    this.onAxis = null;
    onTheme(() => this.redraw(true));
  }

  /** Draw every visible chart again; `fresh` builds it from scratch (colors, scales). */
  redraw(fresh = false) {
    for (const chart of this.charts) chart.invalidate(fresh);
  }

  /** Zoom all charts to a stretch of an axis, or to everything with null. */
  setZoom(/** @type {Zoom | null} */ zoom) {
    this.zoom = zoom && this.#widened(zoom);
    this.redraw();
    this.onZoom(this.zoom);
  }

  /** Say which runs have not measured the x axis; "" where all have. */
  setMissing(/** @type {string} */ text) {
    if (text === this.missing) return;
    this.missing = text;
    this.redraw();
    for (const note of document.querySelectorAll("[data-axis-note]")) note.textContent = text;
  }

  /** Let the legends of the page name a kind of thing from when a chart first shows one; its words stay. */
  name(/** @type {string} */ kind, /** @type {boolean} */ isShown) {
    if (!isShown || this.named.has(kind)) return;
    this.named.add(kind);
    for (const key of document.querySelectorAll(`[data-${kind}-key]`)) key.hidden = false;
  }

  /** A zoom shows at least one step, or a tenth of a second. */
  #widened(/** @type {Zoom} */ { min, max, axis }) {
    const missing = this.axes[axis].smallest - (max - min);
    return missing > 0 ? { min: min - missing / 2, max: max + missing / 2, axis } : { min, max, axis };
  }
}
