/** What all charts of a page share. */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { onTheme } from "./colors.js";

const SMALLEST_ZOOM = { step: 1, time: 0.1 }; // steps, seconds

/** @import { Chart } from "./chart.js" */
/** @import { Mark, Zoom } from "./plot" */

/** Smoothing, x axis, zoom, y scale, marks, dead branches or not. Charts redraw when it changes. */
export class ChartView {
  /** @param {{ smoothing: number, axis: string, isLog: boolean, zoom: Zoom | null, end: number, showsDead?: boolean, leastZoom?: number | null }} options */
  constructor({ smoothing, axis, isLog, zoom, end, showsDead = false, leastZoom = null }) {
    this.smoothing = smoothing;
    this.axis = axis;
    this.isLog = isLog;
    this.end = end;
    this.showsDead = showsDead;
    /** @type {number | null} of an axis that is neither steps nor a clock, what a zoom shows at least */
    this.leastZoom = leastZoom;
    this.zoom = zoom && widened(zoom, leastZoom);
    /** @type {Mark[]} */
    this.marks = [];
    /** @type {Set<Chart>} */
    this.charts = new Set();
    this.sync = uPlot.sync("run");
    /** @type {(zoom: Zoom | null) => void} */
    this.onZoom = () => {};
    /** @type {((point: { x: number, isTime: boolean }) => void) | null} a click on a point: its step, or its Unix time */
    this.onPick = null;
    onTheme(() => this.redraw(true));
  }

  /** Draw every visible chart again; `fresh` builds it from scratch (colors, scales). */
  redraw(fresh = false) {
    for (const chart of this.charts) chart.invalidate(fresh);
  }

  /** Zoom all charts to { min, max }, or to everything with null. A zoom shows at least one step, or a tenth of a second. */
  setZoom(/** @type {Zoom | null} */ zoom) {
    this.zoom = zoom && widened(zoom, this.leastZoom);
    this.redraw();
    this.onZoom(this.zoom);
  }
}

/**
 * @param {Zoom} zoom
 * @param {number | null} [least]
 */
function widened({ min, max, isTime }, least = null) {
  const missing = (least ?? (isTime ? SMALLEST_ZOOM.time : SMALLEST_ZOOM.step)) - (max - min);
  return missing > 0 ? { min: min - missing / 2, max: max + missing / 2, isTime } : { min, max, isTime };
}
