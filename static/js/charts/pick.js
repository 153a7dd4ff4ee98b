/** Tells which point of a chart was clicked. A drag zooms and a double click shows everything again: neither is a click. */

const STILL = 3; // pixels that a click may move
const DOUBLE_MS = 250;

/** @import uPlot from "uplot" */
/** @import { Chart } from "./chart.js" */

/** Call `pick` with the x of the point under the crosshair of a click. */
export function onPick(/** @type {uPlot} */ u, /** @type {(x: number) => void} */ pick) {
  let from = { clientX: Number.NaN, clientY: Number.NaN };
  let timer = 0;
  u.over.addEventListener("mousedown", (event) => {
    from = event;
  });
  u.over.addEventListener("dblclick", () => clearTimeout(timer));
  u.over.addEventListener("click", ({ clientX, clientY, detail }) => {
    const at = u.cursor.idx;
    if (!(Math.hypot(clientX - from.clientX, clientY - from.clientY) <= STILL)) return;
    if (detail > 1 || at === null || at === undefined || u.data[0].length <= at) return;
    const x = u.data[0][at];
    clearTimeout(timer);
    timer = window.setTimeout(() => pick(x), DOUBLE_MS);
  });
}

/** Call `pick` with the x under a click on the x axis. */
export function onAxis(/** @type {uPlot} */ u, /** @type {(x: number) => void} */ pick) {
  const axis = u.root.querySelector("div.u-axis"); // the first is that of x
  if (!axis) return;
  axis.classList.add("is-open");
  axis.addEventListener("click", ({ offsetX }) => pick(u.posToVal(offsetX, "x")));
}

/** Ask for what was at the crosshair of a chart, or at its newest point; false where there is none, or nobody to ask. */
export function pickNow(/** @type {Chart} */ chart) {
  const { shown, uplot, axisName, view } = chart;
  const xs = shown?.data[0] ?? [];
  const x = xs[uplot?.cursor.idx ?? xs.length - 1];
  if (x === undefined || !view.onPick) return false;
  view.onPick({ x, axis: axisName, chart });
  return true;
}
