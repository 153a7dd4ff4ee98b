/** The tools above the charts of a page, and its address: smoothing, x axis, y axis, zoom. All of its toolbars show one state. */

import { write } from "../format.js";
import { SMOOTHERS, Smoothing } from "./smoothing.js";

/** @import { Axis } from "./axes.js" */
/** @import { ChartView, ViewOptions } from "./view.js" */
/** @typedef {{ get: (name: string) => string | null, set: (name: string, value: string) => void }} Query the page's address */

const DEFAULT_STRENGTH = 0.6;
const REREAD_MS = 250; // after the last move of the slider

/**
 * Return what the address says of the charts.
 *
 * @param {Query} query
 * @param {Record<string, Axis>} axes
 * @returns {Omit<ViewOptions, "end">}
 */
export function viewOptions(query, axes) {
  const strength = Number(query.get("smooth") ?? DEFAULT_STRENGTH);
  const [min, max] = (query.get("zoom") ?? "").split("_").map(Number);
  const wanted = query.get("x") ?? "";
  const axis = Object.hasOwn(axes, wanted) ? wanted : "step";
  return {
    axes,
    axis,
    smoothing: new Smoothing(query.get("by") ?? "", strength >= 0 && strength < 1 ? strength : DEFAULT_STRENGTH),
    isLog: query.get("log") === "1",
    leavesOut: query.get("clip") === "1",
    zoom: max > min ? { min, max, axis } : null,
  };
}

/**
 * Let the tools of the page change `view`, and its address with it.
 *
 * @param {ChartView} view
 * @param {Query} query
 * @param {object} calls
 * @param {() => void} calls.onSmoothing it is another one, and settled
 * @param {() => void} calls.onAxis x is another axis; nothing is zoomed any longer
 * @param {() => void} calls.onZoom
 */
export function wireControls(view, query, { onSmoothing, onAxis, onZoom }) {
  smoothing(view, query, onSmoothing);
  for (const select of document.querySelectorAll("select[data-axis]")) {
    select.value = view.axis;
    select.addEventListener("change", () => {
      view.axis = select.value;
      for (const other of document.querySelectorAll("select[data-axis]")) other.value = view.axis;
      query.set("x", view.axis === "step" ? "" : view.axis);
      query.set("zoom", "");
      view.zoom = null;
      view.setMissing("");
      zoomed();
      view.redraw(true);
      onAxis();
    });
  }
  box("input[data-log-y]", view.isLog, (isOn) => {
    view.isLog = isOn;
    query.set("log", isOn ? "1" : "");
    view.redraw(true);
  });
  box("input[data-clip-y]", view.leavesOut, (isOn) => {
    view.leavesOut = isOn;
    query.set("clip", isOn ? "1" : "");
    view.redraw(true);
  });
  const zoomed = () => {
    for (const button of document.querySelectorAll("[data-zoom-reset]")) button.hidden = !view.zoom;
  };
  for (const button of document.querySelectorAll("[data-zoom-reset]"))
    button.addEventListener("click", () => view.setZoom(null));
  view.onZoom = (zoom) => {
    zoomed();
    query.set("zoom", zoom ? `${zoom.min.toPrecision(12)}_${zoom.max.toPrecision(12)}` : "");
    onZoom();
  };
  zoomed();
}

function smoothing(/** @type {ChartView} */ view, /** @type {Query} */ query, /** @type {() => void} */ onSmoothing) {
  let timer = 0;
  const tell = () => {
    const { strength, kind, amount } = view.smoothing;
    for (const slider of document.querySelectorAll("input[data-smooth]")) slider.value = String(strength);
    for (const select of document.querySelectorAll("select[data-smoother]")) select.value = kind;
    for (const text of document.querySelectorAll("[data-smooth-value]")) write(text, amount);
  };
  const change = (/** @type {Smoothing} */ next) => {
    view.smoothing = next;
    query.set("smooth", next.strength === DEFAULT_STRENGTH ? "" : String(next.strength));
    query.set("by", next.kind === SMOOTHERS[0] ? "" : next.kind);
    tell();
    view.redraw();
    clearTimeout(timer);
    timer = window.setTimeout(onSmoothing, REREAD_MS);
  };
  for (const slider of document.querySelectorAll("input[data-smooth]"))
    slider.addEventListener("input", () => change(new Smoothing(view.smoothing.kind, Number(slider.value))));
  for (const select of document.querySelectorAll("select[data-smoother]"))
    select.addEventListener("change", () => change(new Smoothing(select.value, view.smoothing.strength)));
  tell();
}

/** Let boxes show and change one thing. */
function box(
  /** @type {"input[data-log-y]" | "input[data-clip-y]"} */ selector,
  /** @type {boolean} */ isOn,
  /** @type {(isOn: boolean) => void} */ change,
) {
  for (const one of document.querySelectorAll(selector)) {
    one.checked = isOn;
    one.addEventListener("change", () => change(one.checked));
  }
}
