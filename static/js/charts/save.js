/** Buttons that save a chart as PNG, SVG or CSV. */

import { el } from "../format.js";
import { color } from "./colors.js";
import * as numbers from "./numbers.js";
import { csvOf, svgOf } from "./picture.js";

/** @import { Axis } from "./axes.js" */
/** @import { Chart } from "./chart.js" */

const GROUND = "--surface";

/**
 * Let the buttons `[data-save="png|svg|csv"]` of `place` save what `chart()` shows, under the name that `title()` gives.
 *
 * @param {HTMLElement} place
 * @param {{ chart: () => Chart | null, title: () => string }} what
 */
export function wireSaving(place, { chart, title }) {
  place.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("button[data-save]") : null;
    const shown = chart();
    if (!button || !shown?.uplot || !shown.shown) return;
    const kind = button.dataset.save ?? "";
    const blob = kind === "png" ? await pngOf(shown, title()) : textOf(shown, kind, title());
    if (blob) save(blob, `${title().replace(/[^\w.-]+/g, "-")}.${kind}`);
  });
}

/** @returns {HTMLFieldSetElement | null} those buttons together: a chart switches them on once it has points */
export function savingIn(/** @type {HTMLElement} */ place) {
  return place.querySelector("fieldset[data-save-chart]");
}

/** @returns {Blob | null} */
function textOf(/** @type {Chart} */ chart, /** @type {string} */ kind, /** @type {string} */ title) {
  const { uplot, shown, plot, view, axis, axisName: xName, isLog } = chart;
  if (!uplot || !shown) return null;
  const smoothing = plot.stacked ? "" : view.smoothing.text;
  if (kind === "csv") return new Blob([csvOf(shown, { xName, smoothing })], { type: "text/csv" });
  const range = (/** @type {"x" | "y"} */ axis) => ({
    min: uplot.scales[axis].min ?? 0,
    max: uplot.scales[axis].max ?? 1,
  });
  const span = range("x").max - range("x").min;
  const text = svgOf(shown, {
    title,
    xName,
    width: uplot.width,
    height: uplot.height + 40,
    x: range("x"),
    y: range("y"),
    isLog,
    band: plot.band,
    limits: plot.limits,
    marks: chart.marks,
    color,
    xTick: (x) => (axis.isClock ? numbers.timeTick(x, span / 4) : tickOf(axis, xName === "step" ? Math.round(x) : x)),
    yTick: (y) => numbers.tick(y, plot.unit),
  });
  return new Blob([text], { type: "image/svg+xml" });
}

const tickOf = (/** @type {Axis} */ { tick }, /** @type {number} */ x) => tick?.(x) ?? numbers.short(x);

/** Return the canvas as it is on the screen, on the card's ground, with its title above. */
function pngOf(/** @type {Chart} */ { uplot }, /** @type {string} */ title) {
  const own = uplot?.ctx.canvas;
  const canvas = document.createElement("canvas");
  const brush = canvas.getContext("2d");
  if (!own || !brush) return null;
  const head = 26 * devicePixelRatio;
  canvas.width = own.width;
  canvas.height = own.height + head;
  brush.fillStyle = color(GROUND);
  brush.fillRect(0, 0, canvas.width, canvas.height);
  brush.fillStyle = color("--text");
  brush.font = `600 ${13 * devicePixelRatio}px system-ui, sans-serif`;
  brush.fillText(title, 10 * devicePixelRatio, 18 * devicePixelRatio);
  brush.drawImage(own, 0, head);
  return /** @type {Promise<Blob | null>} */ (new Promise((resolve) => canvas.toBlob(resolve)));
}

function save(/** @type {Blob} */ blob, /** @type {string} */ name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
