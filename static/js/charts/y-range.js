/** From where to where a y axis reaches: what its lines and their envelopes hold, with room around, or without outliers. */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { LOG_DECADES, SMALLEST_LOG } from "./lines.js";
import { eachInSight, withoutOutliers } from "./outliers.js";
import { reached } from "./reach.js";

/** @import { Plot, Shown } from "./plot" */

const FLAT = 1e-6; // a span below this share of the size is flat: its ticks would be closer than the numbers can be

/**
 * Return the range of the y axis.
 *
 * @param {object} chart
 * @param {uPlot} chart.uplot
 * @param {Shown} chart.shown
 * @param {Plot} chart.plot
 * @param {Set<string>} chart.hidden
 * @param {boolean} chart.isLog
 * @param {boolean} chart.leavesOut outliers
 * @param {[number | null, number | null]} lines the least and the most of the lines
 * @returns {uPlot.Range.MinMax}
 */
export function yRange({ uplot, shown, plot, hidden, isLog, leavesOut }, [least, most]) {
  const inside = leavesOut && !plot.stacked ? usualOf(shown, uplot, hidden, isLog) : null;
  const [low, high] = inside ?? reached(shown.envelopes, uplot.scales.x, least, most);
  if (isLog) return logRange(low, high, inside ? low : least);
  return linearRange(plot, low, high);
}

function usualOf(
  /** @type {Shown} */ shown,
  /** @type {uPlot} */ uplot,
  /** @type {Set<string>} */ hidden,
  /** @type {boolean} */ isLog,
) {
  /** @type {number[]} */
  const values = [];
  eachInSight(shown, uplot.scales.x, hidden, (_x, low, high) => {
    values.push(low);
    if (high !== low) values.push(high);
  });
  return withoutOutliers(values, isLog);
}

/**
 * @param {number | null} low
 * @param {number | null} high
 * @param {number | null} least of the lines
 * @returns {uPlot.Range.MinMax}
 */
function logRange(low, high, least) {
  if (low === null || high === null || high <= 0) return [null, null];
  const floor = Math.max(high * LOG_DECADES, SMALLEST_LOG);
  return uPlot.rangeLog(low > floor ? low : Math.max(least ?? floor, floor), high, 10, false);
}

/**
 * @param {Plot} plot
 * @param {number | null} low
 * @param {number | null} high
 * @returns {uPlot.Range.MinMax}
 */
function linearRange({ stacked, unit, limits = [] }, low, high) {
  if (low === null || high === null) return [0, 1];
  if (stacked) return [0, high * 1.12 || 1];
  if (["bytes", "%"].includes(unit)) return [0, high * 1.1 || 1];
  const near = limits.filter((limit) => limit.value <= high * 3 && limit.value >= low).map((limit) => limit.value);
  const top = Math.max(high, ...near);
  const size = Math.max(Math.abs(top), Math.abs(low));
  const isFlat = top - low <= size * FLAT; // smoothing a constant leaves differences in the last digit
  const room = (isFlat ? size : top - low) * 0.1 || 0.1;
  const bottom = low >= 0 && low - room * 3 < 0 ? 0 : low - room;
  return uPlot.rangeNum(bottom, top + room, {
    min: { pad: 0, soft: 0, mode: bottom === 0 ? 1 : 0 },
    max: { pad: 0, soft: 0, mode: 0 },
  });
}
