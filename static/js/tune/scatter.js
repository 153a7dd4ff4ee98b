/** One dot a run: the metric's best or last value over one knob, on a log axis where the values span a decade. */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { color, onTheme } from "../charts/colors.js";
import { figure, fill, gettext } from "../format.js";

const HEIGHT = 300;
const RADIUS = 5; // CSS pixels
const MOST_TICKS = 8;
const FONT = '10.5px Inter, "Inter", system-ui, sans-serif';

export class Scatter {
  constructor(place, caption) {
    this.place = place;
    this.caption = caption;
    this.axis = "";
    this.value = "best";
    this.points = null;
    this.uplot = null;
    this.drawn = "";
    new ResizeObserver(() => {
      if (this.uplot && place.clientWidth) this.uplot.setSize({ width: place.clientWidth, height: HEIGHT });
    }).observe(place);
    onTheme(() => this.#draw());
  }

  /** Draw `points` ({axes, runs, metric}) if anything in them is new. */
  show(points) {
    const text = JSON.stringify([points, this.axis, this.value]);
    if (text === this.drawn) return;
    this.drawn = text;
    this.points = points;
    this.#draw();
  }

  #draw() {
    if (!this.points) return;
    const axis = this.points.axes.find((a) => a.id === this.axis) ?? this.points.axes[0];
    const dots = this.points.runs
      .filter((run) => Number.isFinite(run[this.value]) && run.values[axis.id] !== undefined)
      .map((run) => ({
        ...run,
        x: axis.words.length ? axis.words.indexOf(run.values[axis.id]) : run.values[axis.id],
        y: run[this.value],
      }))
      .sort((a, b) => a.x - b.x);
    this.uplot?.destroy();
    this.uplot = null;
    this.place.replaceChildren();
    this.#tell(dots, axis, null);
    if (!dots.length) return;
    this.uplot = new uPlot(this.#options(dots, axis), [dots.map((dot) => dot.x), dots.map((dot) => dot.y)], this.place);
  }

  /** @returns {uPlot.Options} */
  #options(dots, axis) {
    const xs = dots.map((dot) => dot.x);
    const [low, high] = [Math.min(...xs), Math.max(...xs)];
    const line = {
      stroke: () => color("--text-3"),
      font: FONT,
      ticks: { show: false },
      grid: { stroke: () => color("--gridc"), width: 1 },
    };
    const room = axis.words.length ? 0.5 : (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
    return {
      width: this.place.clientWidth || 400,
      height: HEIGHT,
      padding: [10, 16, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: {
        x: {
          time: false,
          distr: axis.is_log ? 3 : 1,
          range: axis.is_log ? [low / 1.6, high * 1.6] : [low - room, high + room],
        },
        y: {
          range: (_u, from, to) =>
            from === to
              ? [from - (Math.abs(from) * 0.1 || 1), to + (Math.abs(to) * 0.1 || 1)]
              : [from - (to - from) * 0.12, to + (to - from) * 0.12],
        },
      },
      axes: [
        {
          ...line,
          size: 38,
          gap: 3,
          label: axis.label,
          labelSize: 16,
          labelFont: FONT,
          ...this.#ticks(axis, [...new Set(xs)]),
        },
        { ...line, size: 54, gap: 4, values: (_u, splits) => splits.map((value) => figure(value)) },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [(u) => this.#dots(u, dots)], setCursor: [(u) => this.#tell(dots, axis, nearest(u, dots))] },
    };
  }

  /** The values themselves where they are few, as in a grid. */
  #ticks(axis, xs) {
    if (axis.words.length) return { splits: () => axis.words.map((_word, i) => i), values: () => axis.words };
    if (xs.length <= MOST_TICKS)
      return { splits: () => xs, values: () => xs.map(short), filter: (_u, splits) => splits };
    if (axis.is_log)
      return {
        values: (_u, splits) => splits.map((value) => (value === null ? "" : short(value))),
        filter: (_u, splits) => splits.map((v) => (isRound(v) ? v : null)),
      };
    return { values: (_u, splits) => splits.map(short) };
  }

  #dots(u, dots) {
    const { ctx } = u;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    for (const dot of dots) {
      ctx.beginPath();
      ctx.arc(u.valToPos(dot.x, "x", true), u.valToPos(dot.y, "y", true), RADIUS * ratio, 0, 2 * Math.PI);
      ctx.fillStyle = color(`--run-${dot.color}`);
      ctx.fill();
      ctx.lineWidth = 1.5 * ratio;
      ctx.strokeStyle = color("--surface");
      ctx.stroke();
    }
    ctx.restore();
  }

  #tell(dots, axis, dot) {
    const { metric } = this.points;
    if (!dots.length) this.caption.textContent = fill(gettext("No run has a value of %(metric)s yet."), { metric });
    else if (dot) this.caption.textContent = `${dot.name}: ${figure(dot.y)}`;
    else
      this.caption.textContent = fill(
        this.value === "best"
          ? gettext("best %(metric)s of each run over %(knob)s")
          : gettext("last %(metric)s of each run over %(knob)s"),
        { metric, knob: axis.label },
      );
  }
}

function nearest(u, dots) {
  const { left, top } = u.cursor;
  if (left === undefined || left < 0) return null;
  let found = null;
  let least = 24; // pixels
  for (const dot of dots) {
    const distance = Math.hypot(u.valToPos(dot.x, "x") - left, u.valToPos(dot.y, "y") - top);
    if (distance < least) [found, least] = [dot, distance];
  }
  return found;
}

function short(value) {
  return Math.abs(value) > 0 && Math.abs(value) < 1e-3
    ? value.toExponential().replace("e-0", "e-")
    : String(Number(value.toPrecision(4)));
}

/** 1, 2 and 5 of each decade: what a log axis writes out. */
function isRound(value) {
  const mantissa = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
  return [1, 2, 5].some((wanted) => Math.abs(mantissa - wanted) < 1e-6);
}
