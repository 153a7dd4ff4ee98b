/**
 * One chart of a card: raw ghost under the smoothed line, marks on top, a crosshair shared by all charts of the page.
 * It draws only while it can be seen. Its head shows the latest value, or under the crosshair the value there.
 */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { el, grouped } from "../format.js";
import { RUN_AXES } from "./axes.js";
import { color, faded } from "./colors.js";
import { drawQueue } from "./draw-queue.js";
import { drawEnvelopes } from "./envelope.js";
import { endsOf, loneValues } from "./gaps.js";
import { collect } from "./lines.js";
import { drawBand, drawClipped, drawGaps, drawLimits, drawMarks, drawOdd } from "./marks.js";
import { tellMarks } from "./near.js";
import * as numbers from "./numbers.js";
import { clippedBy } from "./outliers.js";
import { onAxis, onPick } from "./pick.js";
import { readingOf } from "./reading.js";
import { yRange } from "./y-range.js";

const BINARY = Array.from({ length: 60 }, (_none, power) => 2 ** power); // between ticks of bytes: 512 MiB, 1 GiB
const MANY_LINES = 12; // more of them have no dots under the crosshair, and are thin
const WIDTH = 1.6;
const THIN = 1; // of many lines: they hide less of each other, and take a twentieth of the time to draw without a GPU
const DASH = [4, 3];
const SOME = [3, 4]; // of a mean where not all of its runs have a value
const TICK_ROOM = 28; // pixels from the corner in which a time would stand on the lowest number of the y axis
const AXIS_FONT = '10.5px Inter, "Inter", system-ui, sans-serif';

/** @import { Xs } from "./align.js" */
/** @import { DrawnLine, Parts, Plot, Shown, Store } from "./plot" */
/** @import { ChartView } from "./view.js" */

const seen = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) entry.target.chart?.setSeen(entry.isIntersecting);
  },
  { rootMargin: "120px" },
);

const sized = new ResizeObserver((entries) => {
  for (const { target, borderBoxSize } of entries) {
    const [{ inlineSize, blockSize }] = borderBoxSize;
    target.chart?.resize({ width: Math.round(inlineSize), height: Math.round(blockSize) });
  }
});

/** @returns {number[] | undefined} of the line of one run in the same color, or of a mean of some of its runs */
function dashOf(/** @type {DrawnLine} */ { look, dash }) {
  if (look === "some") return SOME;
  if (look !== "line" || !dash) return undefined;
  return Array.isArray(dash) ? dash : DASH;
}

/** @type {(u: uPlot, init: Function) => void} */
const drawNow = (u, init) => u.batch(init);

export class Chart {
  /** @type {((index: number | null, shown: Shown | null) => void) | null} called with where the crosshair is */
  onCursor = null;
  /** @type {Shown | null} */
  shown = null;
  layout = "";

  /**
   * @param {Parts} parts
   * @param {Plot} plot
   * @param {Store} store
   * @param {ChartView} view
   */
  constructor(parts, plot, store, view) {
    this.parts = parts;
    this.plot = plot;
    this.store = store;
    this.view = view;
    /** @type {Set<string>} */
    this.hidden = new Set();
    this.isSeen = false;
    this.needs = "build";
    this.size = { width: 0, height: 0 };
    /** @type {uPlot | null} */
    this.uplot = null;
    parts.body.chart = this;
    if (parts.saving) parts.saving.disabled = true; // what the chart before it had is gone
    view.charts.add(this);
    seen.observe(parts.body);
    sized.observe(parts.body);
  }

  /** Stop drawing and forget the canvas. */
  destroy() {
    seen.unobserve(this.parts.body);
    sized.unobserve(this.parts.body);
    this.view.charts.delete(this);
    drawQueue.delete(this);
    this.uplot?.destroy();
    this.uplot = null;
    delete this.parts.body.chart;
  }

  setSeen(/** @type {boolean} */ isSeen) {
    this.isSeen = isSeen;
    if (isSeen && this.needs) drawQueue.add(this);
  }

  /** Take the size of the card; the observer tells it, so that nobody has to have the page laid out to ask for it. */
  resize(/** @type {{ width: number, height: number }} */ size) {
    this.size = size;
    if (!this.uplot) {
      if (this.isSeen && this.needs) drawQueue.add(this);
      return;
    }
    const { width, height } = size;
    if (width && height && (width !== this.uplot.width || height !== this.uplot.height))
      this.uplot.setSize({ width, height });
  }

  /** Ask for a new drawing, soon, once, and only while it can be seen. */
  invalidate(fresh = false) {
    this.needs = fresh || this.needs === "build" ? "build" : "data";
    if (this.isSeen) drawQueue.add(this);
  }

  /** Draw now what is there; nothing while it has no size. */
  draw() {
    const { width, height } = this.size;
    if (!width || !height) return;
    const shown = collect(this);
    this.shown = shown; // the ranges that uPlot asks for while it is built read it
    if (!shown.lines.length && this.view.missing && !this.plot.isTime) this.#say(this.view.missing);
    else this.#show(shown, width, height);
    this.needs = "";
    this.#tellPoints(shown);
    this.#tellSaving(shown);
    this.#tellLegend(shown);
    this.#tellValue(null);
  }

  /** Say why there is nothing to draw. */
  #say(/** @type {string} */ text) {
    this.uplot?.destroy();
    this.uplot = null;
    this.parts.body.replaceChildren(el("p", { class: "chart-missing faint small" }, text));
  }

  #show(/** @type {Shown} */ shown, /** @type {number} */ width, /** @type {number} */ height) {
    if (shown.layout !== this.layout) this.needs = "build";
    if (this.needs === "build" || !this.uplot) {
      this.layout = shown.layout;
      this.uplot?.destroy();
      // Drawn at once, and before it is in the page: a canvas in the page has it styled anew for each font that is set.
      this.uplot = new uPlot(this.#options(shown, width, height), shown.data, drawNow);
      this.parts.body.replaceChildren(this.uplot.root);
    } else {
      this.uplot.batch((/** @type {uPlot} */ u) => {
        u.setData(shown.data, false);
        this.#scale();
        u.redraw(true, true);
      });
    }
  }

  /** The name of the x axis, and what it is like. */
  get axisName() {
    return this.plot.isTime ? "time" : this.view.axis;
  }

  get axis() {
    return this.plot.isTime ? RUN_AXES.time : this.view.axes[this.view.axis];
  }

  get isLog() {
    return this.view.isLog && !this.plot.stacked;
  }

  /**
   * @param {Shown} shown
   * @param {number} width
   * @param {number} height
   * @returns {uPlot.Options}
   */
  #options(shown, width, height) {
    const { plot, view } = this;
    const { tick, apart, isClock = false } = this.axis;
    const axis = {
      stroke: () => color("--text-3"),
      font: AXIS_FONT,
      ticks: { show: false },
      grid: { stroke: () => color("--gridc"), width: 1 },
    };
    const { isLog } = this;
    return {
      width,
      height,
      padding: [8, 20, 0, 0], // half of the last number of the axis stands beyond it
      legend: { show: false },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        points: { size: 5, width: 1.5, show: shown.drawn.length <= MANY_LINES },
        sync: { key: isClock ? "run-time" : "run", setSeries: false, scales: ["x", null] },
        bind: {
          dblclick: () => () => {
            view.setZoom(null);
            return null;
          },
        },
      },
      scales: {
        x: { time: isClock, range: () => this.#xRange() },
        y: {
          distr: isLog ? 3 : 1,
          range: (u, low, high) => this.#yRange(u, low, high),
        },
      },
      axes: [
        {
          ...axis,
          size: 20,
          gap: 2,
          space: isClock ? 80 : 64,
          incrs: apart,
          values: isClock
            ? (u, splits, _at, _space, step) =>
                splits.map((value) => (u.valToPos(value, "x") < TICK_ROOM ? "" : numbers.timeTick(value, step)))
            : tick
              ? (_u, splits) => splits.map((value) => tick(value))
              : undefined,
        },
        {
          ...axis,
          size: (_u, values) => this.#axisSize(values),
          gap: 4,
          space: 26,
          incrs: plot.unit === "bytes" ? BINARY : undefined,
          values: (u, splits) => (u.data[0].length ? numbers.ticks(splits, plot.unit) : []),
        },
      ],
      series: [{}, ...shown.drawn.map((line) => this.#series(line, shown.drawn.length > MANY_LINES ? THIN : WIDTH))],
      hooks: {
        ready: [
          (u) => onPick(u, (x) => view.onPick?.({ x, axis: this.axisName, chart: this })),
          (u) => view.onAxis && onAxis(u, (x) => view.onAxis?.({ x, axis: this.axisName })),
        ],
        drawClear: [
          (u) => view.name("band", drawBand(u, plot.band)),
          (u) => view.name("limit", drawLimits(u, plot.limits ?? [])),
        ],
        drawAxes: [(u) => drawEnvelopes(u, this.shown?.envelopes ?? shown.envelopes)],
        draw: [(u) => this.#drawAround(u, this.shown ?? shown)],
        setCursor: [(u) => this.#tellValue(u.cursor.idx), (u) => tellMarks(u, this.marks)],
        setSelect: [(u) => this.#zoomed(u)],
      },
    };
  }

  /** Draw what stands on the lines and at the edges. */
  #drawAround(/** @type {uPlot} */ u, /** @type {Shown} */ shown) {
    drawMarks(u, this.marks);
    if (!this.plot.stacked) this.view.name("gap", drawGaps(u, shown));
    this.view.name(
      "some",
      shown.drawn.some((line) => line.look === "some"),
    );
    this.view.name("odd", drawOdd(u, shown.odd));
    if (this.view.leavesOut && !this.plot.stacked)
      drawClipped(u, clippedBy(shown, { x: u.scales.x, y: u.scales.y }, this.hidden));
  }

  /** @returns {uPlot.Series} */
  #series(/** @type {DrawnLine} */ line, /** @type {number} */ usual) {
    const stroke = () => color(line.color);
    const shared = { label: line.label, show: !this.hidden.has(line.id), points: { show: false } };
    const holes = (/** @type {uPlot} */ u, /** @type {number} */ at) => this.#holes(u, at); // and no others: of phases some steps have none
    if (line.look === "area") return { ...shared, gaps: holes, width: 0, stroke, fill: stroke };
    if (line.look === "points") {
      return {
        ...shared,
        paths: () => null,
        stroke,
        points: { show: true, size: 6, width: 1.5, stroke, fill: () => color("--surface") },
      };
    }
    const ink =
      line.look === "dead"
        ? () => color("--dead")
        : line.look === "ghost"
          ? () => faded(color(line.color), 0.26)
          : stroke;
    return {
      ...shared,
      gaps: (u, at, _first, _last, gaps) => [...gaps, ...this.#holes(u, at)].sort(([a], [b]) => a - b),
      points: { show: false, size: 5, stroke: ink, fill: ink, filter: (u, at) => this.#lone(u, at) },
      width: line.look === "line" ? (line.width ?? usual) : THIN,
      dash: dashOf(line),
      stroke: ink,
    };
  }

  /** @returns {[number, number][]} from where to where, in pixels of the canvas, no line leads across */
  #holes(/** @type {uPlot} */ u, /** @type {number} */ at) {
    const column = this.shown?.drawn[at - 1].column ?? { x: [], breaks: [] };
    const pixel = (/** @type {number} */ i) => u.valToPos(column.x[i], "x", true);
    return endsOf(column).map((i) => /** @type {[number, number]} */ ([pixel(i - 1), pixel(i)]));
  }

  /** @returns {number[] | null} the places of values that a line cannot show */
  #lone(/** @type {uPlot} */ u, /** @type {number} */ at) {
    const column = this.shown?.drawn[at - 1].column ?? { x: [], breaks: [] };
    const starts = new Set(endsOf(column).map((i) => column.x[i]));
    const lone = loneValues(/** @type {any} */ (u.data[at]), (place) => starts.has(u.data[0][place]));
    return lone.length ? lone : null;
  }

  #axisSize(/** @type {string[] | null} */ values) {
    const longest = (values ?? []).reduce((most, text) => Math.max(most, (text ?? "").length), 3);
    return Math.max(34, longest * 6.2 + 10);
  }

  /** @returns {[number, number]} */
  #xRange() {
    const { zoom, end } = this.view;
    const xs = this.shown?.data[0] ?? [];
    if (zoom?.axis === this.axisName) return [zoom.min, zoom.max];
    if (this.axis.isClock) return this.#clockRange(xs);
    const last = xs.length ? xs[xs.length - 1] : 0;
    return [0, Math.max(this.axisName === "step" ? end : 0, last, this.axis.smallest)];
  }

  /**
   * All charts on the clock share one range: that of the timeline, or of their own points before it is read.
   *
   * @param {Xs} xs
   * @returns {[number, number]}
   */
  #clockRange(xs) {
    const { lanes } = this.store;
    const now = Date.now() / 1e3;
    const own = xs.length ? [xs[0], xs[xs.length - 1]] : [now - 60, now];
    const [from, to] = lanes?.numSpans
      ? [lanes.clock.date(lanes.start), lanes.clock.date(lanes.end)].map((date) => date.getTime() / 1e3)
      : own;
    return [from, Math.max(to, from + 10)];
  }

  /** The marks of the page, on the x axis. */
  get marks() {
    const place = this.store.placesOf?.(this.axisName, null);
    if (!place) return this.view.marks;
    return this.view.marks.flatMap((mark) => {
      const x = place(mark.x);
      return x === null ? [] : [{ ...mark, x, to: mark.to === undefined ? undefined : (place(mark.to) ?? x) }];
    });
  }

  /**
   * @param {uPlot} uplot
   * @param {number | null} least of the lines
   * @param {number | null} most
   * @returns {uPlot.Range.MinMax}
   */
  #yRange(uplot, least, most) {
    const { shown, plot, hidden, isLog, view } = this;
    if (!shown) return [0, 1];
    return yRange({ uplot, shown, plot, hidden, isLog, leavesOut: view.leavesOut }, [least, most]);
  }

  #scale() {
    const [min, max] = this.#xRange();
    this.uplot?.setScale("x", { min, max });
  }

  #zoomed(/** @type {uPlot} */ u) {
    if (u.select.width < 4) return;
    const min = u.posToVal(u.select.left, "x");
    const max = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.view.setZoom({ min, max, axis: this.axisName });
  }

  #tellPoints(/** @type {Shown} */ shown) {
    if (!this.parts.points) return;
    const n = shown.lines.reduce((sum, line) => sum + line.column.n, 0);
    const of = shown.lines.reduce((sum, line) => sum + line.column.of, 0);
    this.parts.points.textContent =
      of > n ? (this.parts.points.dataset.text ?? "").replace("%n", grouped(n)).replace("%of", grouped(of)) : "";
  }

  /** A file of a chart whose points have not come yet would be a head without numbers. */
  #tellSaving(/** @type {Shown} */ shown) {
    const { saving } = this.parts;
    if (saving) saving.disabled = !this.uplot || shown.lines.every((line) => !line.column.n);
  }

  /** Name the lines where there are several; a click hides one. */
  #tellLegend(/** @type {Shown} */ shown) {
    const { legend } = this.parts;
    if (!legend) return;
    const lines = shown.lines.length > 1 ? shown.lines : [];
    const signature = lines.map((line) => `${line.id}${this.hidden.has(line.id)}`).join();
    if (legend.dataset.shown === signature) return;
    legend.dataset.shown = signature;
    legend.replaceChildren(
      ...lines.map((line) => {
        const swatch = el("i", { class: "swatch" });
        swatch.style.background = `var(${line.color})`;
        const isShown = String(!this.hidden.has(line.id));
        return el(
          "button",
          { type: "button", "aria-pressed": isShown, onclick: () => this.toggle(line.id) },
          swatch,
          line.label,
        );
      }),
    );
  }

  /** Show the value at the crosshair, or the latest one. */
  #tellValue(/** @type {number | null | undefined} */ index) {
    const { value } = this.parts;
    const shown = this.shown;
    this.onCursor?.(index ?? null, shown);
    if (!value || !shown) return;
    const at = index ?? null;
    const text = readingOf(shown, at, { plot: this.plot, hidden: this.hidden, word: this.axis.word });
    const isUnder = at !== null && shown.lines.some((line) => !this.hidden.has(line.id));
    if (value.textContent !== text) value.textContent = text;
    value.classList.toggle("is-under-cursor", isUnder);
  }

  /** Show or hide one line (a click on its legend). */
  toggle(/** @type {string} */ id) {
    if (!this.hidden.delete(id)) this.hidden.add(id);
    this.invalidate(true);
  }
}
