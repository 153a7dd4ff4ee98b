/**
 * One chart of a card: raw ghost under the smoothed line, marks on top, a crosshair shared by all charts of the page.
 * It draws only while it can be seen. Its head shows the latest value, or under the crosshair the value there.
 */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { el, grouped, laneName } from "../format.js";
import { align, finite, spread, stack } from "./align.js";
import { EVERYTHING } from "./branches.js";
import { color, faded } from "./colors.js";
import { drawQueue } from "./draw-queue.js";
import { drawEnvelopes } from "./envelope.js";
import { drawBand, drawLimits, drawMarks, drawOdd } from "./marks.js";
import { tellMarks } from "./near.js";
import * as numbers from "./numbers.js";
import { onAxis, onPick } from "./pick.js";
import { reached } from "./reach.js";
import { readingOf } from "./reading.js";
import { smooth } from "./smooth.js";

const FLAT = 1e-6; // a span below this share of the size is flat: its ticks would be closer than the numbers can be
const LOG_DECADES = 1e-12; // a log axis shows twelve decades below its largest value,
const SMALLEST_LOG = 1e-20; // and nothing where uPlot's ticks lose their digits and never end
const BINARY = Array.from({ length: 60 }, (_none, power) => 2 ** power); // between ticks of bytes: 512 MiB, 1 GiB
const MANY_LINES = 12; // more of them have no dots under the crosshair
const TICK_ROOM = 28; // pixels from the corner in which a time would stand on the lowest number of the y axis
const AXIS_FONT = '10.5px Inter, "Inter", system-ui, sans-serif';

/** @import { Xs } from "./align.js" */
/** @import { AttemptPart, Column, DrawnLine, Envelope, Line, Mark, Parts, Plot, Shown, Source, StepClock, Store } from "./plot" */
/** @import { Series } from "./series.js" */
/** @import { ChartView } from "./view.js" */

/**
 * Return a line of a dead branch, from the point at which it left the history.
 *
 * @param {Omit<DrawnLine, "column">} line
 * @param {{ series: AttemptPart, from: number }} branch
 * @param {number} smoothing
 * @returns {DrawnLine}
 */
function deadLine({ id, name, label, color }, { series: part, from }, smoothing) {
  const y = smoothing > 0 && part.x.length > 2 ? part.smooth : part.y;
  const column = { x: part.x.slice(from), y: y.slice(from), smooth: [], n: 0, of: 0, latest: null };
  return { id: `${id}@${part.attempt}`, name, label, color, attempt: part.attempt, isDead: true, column };
}

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
    const shown = this.#collect();
    this.shown = shown; // the ranges that uPlot asks for while it is built read it
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
    this.needs = "";
    this.#tellPoints(shown);
    this.#tellLegend(shown);
    this.#tellValue(null);
  }

  /**
   * Gather the columns of all lines, with what each line looks like.
   *
   * @returns {Shown}
   */
  #collect() {
    const { plot, view, store } = this;
    /** @type {(DrawnLine & { dead: DrawnLine[] })[]} */
    const lines = [];
    for (const line of plot.lines) {
      /** @type {Map<string, Source[]>} */
      const byLane = new Map();
      for (const series of store.of(line.name)) {
        if (line.role && (series.role !== line.role || series.rank !== line.rank)) continue;
        const lane = `${series.role}|${series.rank}`;
        byLane.set(lane, [...(byLane.get(lane) ?? []), series]);
      }
      const many = byLane.size > 1;
      const lanes = [...byLane].sort(([a], [b]) => (a < b ? -1 : 1));
      lanes.forEach(([lane, attempts], place) => {
        lines.push(this.#line(line, lane, attempts, many, place));
      });
    }
    const dead = view.showsDead && !plot.stacked ? lines.flatMap((line) => line.dead) : [];
    if (view.axis === "time" && !plot.isTime) this.#onClock([...lines, ...dead]);
    const behind = dead.filter((line) => line.column.x.length > 1);
    const kept = [...behind, ...lines.filter((line) => line.column.x.length)];
    const weight = plot.stacked ? 0 : view.smoothing;
    /** @type {Shown["data"]} */
    const aligned = kept.length ? align(kept.map((line) => ({ x: line.column.x, y: line.column.y }))) : [[]];
    /** @type {Shown["odd"]} */
    const odd = [];
    let ys = aligned.slice(1).map((column, i) => {
      const [line, marks] = finite(column);
      if (!kept[i].isDead) for (const [at, value] of marks) odd.push([aligned[0][at], value, kept[i]]);
      return line;
    });
    for (const line of kept) for (const [x, value] of line.column.odd ?? []) odd.push([x, value, line]);
    if (plot.stacked) ys = stack(ys).reverse();
    /** @type {Shown["data"]} */
    const data = [aligned[0]];
    /** @type {DrawnLine[]} */
    const drawn = [];
    kept.forEach((line, i) => {
      if (plot.stacked) {
        drawn.push({ ...kept[kept.length - 1 - i], look: "area" });
        data.push(ys[i]);
      } else if (line.isDead) {
        drawn.push({ ...line, look: "dead" });
        data.push(ys[i]);
      } else if (line.isGhost) {
        drawn.push({ ...line, look: "ghost" });
        data.push(weight > 0 ? finite(spread(aligned[0], line.column.x, line.column.smooth))[0] : ys[i]);
      } else if (line.isPoints) {
        drawn.push({ ...line, look: "points" });
        data.push(ys[i]);
      } else {
        const smoothed = weight > 0 && line.column.x.length > 2;
        if (smoothed && !line.isPlain && !line.column.low) {
          drawn.push({ ...line, look: "ghost" });
          data.push(ys[i]);
        }
        drawn.push({ ...line, look: "line" });
        data.push(smoothed ? finite(spread(aligned[0], line.column.x, line.column.smooth))[0] : ys[i]);
      }
    });
    const looks = drawn.map((line) => `${line.id}:${line.look}`).join(",");
    const layout = `${view.isLog && !plot.stacked}|${view.axis}|${looks}`;
    const live = kept.slice(behind.length);
    const envelopes = this.#envelopes(live);
    return { data: this.#logSafe(data), drawn, odd, envelopes, layout, lines: live, numDead: behind.length };
  }

  /**
   * Return what lies around the lines that are shown, where it is known.
   *
   * @param {DrawnLine[]} lines
   * @returns {Envelope[]}
   */
  #envelopes(lines) {
    return lines.flatMap(({ id, color: ink, column: { x, y, smooth: smoothed, low, high } }) =>
      low && high && !this.hidden.has(id)
        ? [{ color: ink, x, low, high, line: this.view.smoothing > 0 ? smoothed : y }]
        : [],
    );
  }

  /**
   * Return one lane's line: what belongs to the history, and its dead branches.
   *
   * @param {Line} line
   * @param {string} lane "role|rank"
   * @param {Source[]} attempts of the lane
   * @param {boolean} many lanes have a label and a color each
   * @param {number} place
   * @returns {DrawnLine & { dead: DrawnLine[] }}
   */
  #line(line, lane, attempts, many, place) {
    const { smoothing, zoom } = this.view;
    /** @type {AttemptPart[]} */
    const parts = attempts.map((series) => ({
      kind: series.kind,
      attempt: series.attempt,
      latest: series.latest,
      ...series.columns(smoothing, zoom),
    }));
    const { clean, dead } = (this.store.branches ?? EVERYTHING).split(parts);
    /** @type {Column} */
    const column = { x: [], y: [], smooth: [], n: 0, of: 0, latest: null };
    for (const { series: part, count, isCut } of clean) {
      if (!column.x.length && count === part.x.length) {
        const { x, y, smooth: smoothed, low, high, odd } = part;
        Object.assign(column, { x, y, smooth: smoothed, low, high, odd });
      } else {
        column.x = [...column.x, ...part.x.slice(0, count)];
        column.y = [...column.y, ...part.y.slice(0, count)];
        column.smooth = [...column.smooth, ...part.smooth.slice(0, count)];
      }
      column.latest = (isCut ? part.y[count - 1] : part.latest) ?? column.latest;
      column.n += count;
      column.of += count === part.x.length ? part.of : count;
    }
    // One average through the restored step, where every point is at hand to take it over.
    if (clean.length > 1 && smoothing > 0 && parts.every((part) => part.n === part.of))
      column.smooth = smooth(column.y, smoothing);
    const [role, rank] = lane.split("|");
    const own = {
      ...line,
      id: `${line.name}@${lane}`,
      label: many ? laneName({ role, rank: Number(rank) }) : line.label,
      color: many && !line.fixed ? `--run-${place % 10}` : line.color,
    };
    return { ...own, column, dead: dead.map((branch) => deadLine(own, branch, smoothing)) };
  }

  /** Put steps on the clock: each at the end of its work, as the timeline's spans say. */
  #onClock(/** @type {DrawnLine[]} */ lines) {
    /** @type {Map<number | null, StepClock>} */
    const clocks = new Map();
    for (const { column, attempt = null } of lines) {
      const clock = clocks.get(attempt) ?? this.#clock(attempt);
      clocks.set(attempt, clock);
      let last = -Infinity;
      column.x = Array.from(column.x, (step) => (last = Math.max(clock(step) ?? NaN, last + 1e-6)));
      if (!Number.isFinite(column.x[0])) column.x = [];
    }
  }

  /** @returns {StepClock} */
  #clock(/** @type {number | null} */ attempt = null) {
    return this.store.lanes?.clockOfSteps(attempt) ?? (() => null);
  }

  /**
   * Leave out what a log axis cannot show: zero and less, and a smoothed tail of zeros, which would stretch it endlessly.
   *
   * @param {Shown["data"]} data
   * @returns {Shown["data"]}
   */
  #logSafe(data) {
    if (!this.view.isLog || this.plot.stacked) return data;
    let floor = SMALLEST_LOG;
    const [xs, ...ys] = data;
    for (const column of ys) for (const y of column) if (y !== null && y * LOG_DECADES > floor) floor = y * LOG_DECADES;
    return [xs, ...ys.map((column) => column.map((y) => (y !== null && y >= floor ? y : null)))];
  }

  /**
   * @param {Shown} shown
   * @param {number} width
   * @param {number} height
   * @returns {uPlot.Options}
   */
  #options(shown, width, height) {
    const { plot, view } = this;
    const { xTick } = plot;
    const isTime = plot.isTime || view.axis === "time";
    const axis = {
      stroke: () => color("--text-3"),
      font: AXIS_FONT,
      ticks: { show: false },
      grid: { stroke: () => color("--gridc"), width: 1 },
    };
    const isLog = view.isLog && !plot.stacked;
    return {
      width,
      height,
      padding: [8, 20, 0, 0], // half of the last number of the axis stands beyond it
      legend: { show: false },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        points: { size: 5, width: 1.5, show: shown.drawn.length <= MANY_LINES },
        sync: { key: isTime ? "run-time" : "run", setSeries: false, scales: ["x", null] },
        bind: {
          dblclick: () => () => {
            view.setZoom(null);
            return null;
          },
        },
      },
      scales: {
        x: { time: isTime, range: () => this.#xRange() },
        y: {
          distr: isLog ? 3 : 1,
          range: (u, low, high) => (isLog ? this.#logRange(u, low, high) : this.#yRange(u, low, high)),
        },
      },
      axes: [
        {
          ...axis,
          size: 20,
          gap: 2,
          space: isTime ? 80 : 64,
          values: isTime
            ? (u, splits, _at, _space, step) =>
                splits.map((value) => (u.valToPos(value, "x") < TICK_ROOM ? "" : numbers.timeTick(value, step)))
            : xTick && ((_u, splits) => splits.map((value) => xTick(value))),
        },
        {
          ...axis,
          size: (_u, values) => this.#axisSize(values),
          gap: 4,
          space: 26,
          incrs: plot.unit === "bytes" ? BINARY : undefined,
          values: (u, splits) => (u.data[0].length ? splits.map((value) => numbers.tick(value, plot.unit)) : []),
        },
      ],
      series: [{}, ...shown.drawn.map((line) => this.#series(line))],
      hooks: {
        ready: [
          (u) => onPick(u, (x) => view.onPick?.({ x, isTime })),
          (u) => view.onAxis && onAxis(u, (x) => view.onAxis?.({ x, isTime })),
        ],
        drawClear: [(u) => drawBand(u, plot.band), (u) => drawLimits(u, plot.limits ?? [])],
        drawAxes: [(u) => drawEnvelopes(u, this.shown?.envelopes ?? shown.envelopes)],
        draw: [(u) => drawMarks(u, this.#marks(isTime)), (u) => drawOdd(u, this.shown?.odd ?? shown.odd)],
        setCursor: [(u) => this.#tellValue(u.cursor.idx), (u) => tellMarks(u, this.#marks(isTime))],
        setSelect: [(u) => this.#zoomed(u)],
      },
    };
  }

  #series(/** @type {DrawnLine} */ line) {
    const stroke = () => color(line.color);
    const shared = { label: line.label, spanGaps: true, show: !this.hidden.has(line.id), points: { show: false } };
    if (line.look === "area") return { ...shared, width: 0, stroke, fill: stroke };
    if (line.look === "points") {
      return {
        ...shared,
        paths: () => null,
        stroke,
        points: { show: true, size: 6, width: 1.5, stroke, fill: () => color("--surface") },
      };
    }
    const alone = line.column.x.length === 1;
    const points = alone ? { show: true, size: 5, stroke, fill: stroke } : { show: false };
    if (line.look === "dead") return { ...shared, points, width: 1, stroke: () => color("--dead") };
    if (line.look === "ghost") return { ...shared, points, width: 1, stroke: () => faded(color(line.color), 0.26) };
    return {
      ...shared,
      points,
      width: line.width ?? 1.6,
      dash: Array.isArray(line.dash) ? line.dash : line.dash ? [4, 3] : undefined,
      stroke,
    };
  }

  #axisSize(/** @type {string[] | null} */ values) {
    const longest = (values ?? []).reduce((most, text) => Math.max(most, (text ?? "").length), 3);
    return Math.max(34, longest * 6.2 + 10);
  }

  /** @returns {[number, number]} */
  #xRange() {
    const { zoom, end } = this.view;
    const xs = this.shown?.data[0] ?? [];
    const isTime = this.plot.isTime || this.view.axis === "time";
    if (zoom && zoom.isTime === isTime) return [zoom.min, zoom.max];
    const last = xs.length ? xs[xs.length - 1] : 1;
    if (isTime) return this.#clockRange(xs);
    return [0, Math.max(end, last, 1)];
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

  #marks(/** @type {boolean} */ isTime) {
    if (!isTime) return this.view.marks;
    const clock = this.#clock();
    return this.view.marks.flatMap((mark) => {
      const x = clock(mark.x);
      return x === null ? [] : [{ ...mark, x, to: mark.to === undefined ? undefined : (clock(mark.to) ?? x) }];
    });
  }

  /**
   * @param {uPlot} u
   * @param {number | null} least of the lines
   * @param {number | null} most
   * @returns {uPlot.Range.MinMax}
   */
  #logRange(u, least, most) {
    const [low, high] = reached(this.shown?.envelopes ?? [], u.scales.x, least, most);
    if (low === null || high === null || high <= 0) return [null, null];
    const floor = Math.max(high * LOG_DECADES, SMALLEST_LOG);
    return uPlot.rangeLog(low > floor ? low : Math.max(least ?? floor, floor), high, 10, false);
  }

  /**
   * @param {uPlot} u
   * @param {number | null} least of the lines
   * @param {number | null} most
   * @returns {uPlot.Range.MinMax}
   */
  #yRange(u, least, most) {
    const [low, high] = reached(this.shown?.envelopes ?? [], u.scales.x, least, most);
    if (low === null || high === null) return [0, 1];
    if (this.plot.stacked) return [0, high * 1.12 || 1];
    if (["bytes", "%"].includes(this.plot.unit)) return [0, high * 1.1 || 1];
    const limits = (this.plot.limits ?? [])
      .filter((limit) => limit.value <= high * 3 && limit.value >= low)
      .map((limit) => limit.value);
    const top = Math.max(high, ...limits);
    const size = Math.max(Math.abs(top), Math.abs(low));
    const isFlat = top - low <= size * FLAT; // smoothing a constant leaves differences in the last digit
    const room = (isFlat ? size : top - low) * 0.1 || 0.1;
    const bottom = low >= 0 && low - room * 3 < 0 ? 0 : low - room;
    return uPlot.rangeNum(bottom, top + room, {
      min: { pad: 0, soft: 0, mode: bottom === 0 ? 1 : 0 },
      max: { pad: 0, soft: 0, mode: 0 },
    });
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
    this.view.setZoom({ min, max, isTime: this.plot.isTime || this.view.axis === "time" });
  }

  #tellPoints(/** @type {Shown} */ shown) {
    if (!this.parts.points) return;
    const n = shown.lines.reduce((sum, line) => sum + line.column.n, 0);
    const of = shown.lines.reduce((sum, line) => sum + line.column.of, 0);
    this.parts.points.textContent =
      of > n ? (this.parts.points.dataset.text ?? "").replace("%n", grouped(n)).replace("%of", grouped(of)) : "";
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
    const text = readingOf(shown, at, {
      plot: this.plot,
      hidden: this.hidden,
      hasStep: !(this.plot.isTime || this.view.axis === "time"),
    });
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
