/** The lines of a chart: what its store has of each, on the page's x axis, with what each looks like. */

import { laneName } from "../format.js";
import { align, finite, spread, stack } from "./align.js";
import { EVERYTHING } from "./branches.js";
import { breaksOf } from "./gaps.js";

/** @import { Ys } from "./align.js" */
/** @import { AttemptPart, Column, DrawnLine, Envelope, Line, Placed, Plot, Shown, Source, Store } from "./plot" */
/** @import { Smoothing } from "./smoothing.js" */
/** @import { ChartView } from "./view.js" */

export const LOG_DECADES = 1e-12; // a log axis shows twelve decades below its largest value,
export const SMALLEST_LOG = 1e-20; // and nothing where uPlot's ticks lose their digits and never end

/**
 * Gather the columns of all lines of a chart.
 *
 * @param {object} chart
 * @param {Plot} chart.plot
 * @param {ChartView} chart.view
 * @param {Store} chart.store
 * @param {Set<string>} chart.hidden lines whose envelope is not drawn either
 * @returns {Shown}
 */
export function collect({ plot, view, store, hidden }) {
  const lines = plot.lines.flatMap((line) => lanesOf(line, store, view));
  const dead = view.showsDead && !plot.stacked ? lines.flatMap((line) => line.dead) : [];
  if (!plot.isTime) placeAll([...lines, ...dead], store, view.axis);
  const behind = dead.filter((line) => line.column.x.length > 1);
  const live = lines.filter((line) => line.column.x.length);
  const kept = [...behind, ...live];
  /** @type {Shown["data"]} */
  const aligned = kept.length ? align(kept.map((line) => ({ x: line.column.x, y: line.column.y }))) : [[]];
  /** @type {Shown["odd"]} */
  const odd = [];
  const [xs, ...columns] = aligned;
  let ys = columns.map((column, i) => {
    const [line, marks] = finite(column);
    if (!kept[i].isDead) for (const [at, value] of marks) odd.push([xs[at], value, kept[i]]);
    return line;
  });
  for (const line of kept) for (const [x, value] of line.column.odd ?? []) odd.push([x, value, line]);
  if (plot.stacked) ys = stack(ys).reverse();
  const isSmoothed = !plot.stacked && !view.smoothing.isNone;
  /** @type {Shown["data"]} */
  const data = [xs];
  /** @type {DrawnLine[]} */
  const drawn = [];
  const draw = (/** @type {DrawnLine} */ line, /** @type {string} */ look, /** @type {Ys} */ column) => {
    drawn.push({ ...line, look });
    data.push(column);
  };
  const drawLine = (/** @type {DrawnLine} */ line, /** @type {Ys} */ ys) => {
    const { x, counts, most } = line.column;
    if (!counts || counts.every((count) => count === most)) {
      draw(line, "line", ys);
      return;
    }
    const isWhole = spread(xs, x, counts).map((count) => count === most);
    for (const look of ["some", "line"])
      draw(
        line,
        look,
        ys.map((y, at) => (y === undefined || isWhole[at] === (look === "line") ? y : null)),
      );
  };
  kept.forEach((line, i) => {
    const { column } = line;
    const smoothed = () => finite(spread(xs, column.x, column.smooth))[0];
    if (plot.stacked) draw(kept[kept.length - 1 - i], "area", ys[i]);
    else if (line.isDead) draw(line, "dead", ys[i]);
    else if (line.isGhost) draw(line, "ghost", isSmoothed ? smoothed() : ys[i]);
    else if (line.isPoints) draw(line, "points", ys[i]);
    else if (isSmoothed && column.x.length > 2) {
      if (!line.isPlain && !column.low) draw(line, "ghost", ys[i]);
      drawLine(line, smoothed());
    } else drawLine(line, ys[i]);
  });
  const looks = drawn.map((line) => `${line.id}:${line.look}`).join(",");
  const isLog = view.isLog && !plot.stacked;
  return {
    data: isLog ? logSafe(data) : data,
    drawn,
    odd,
    envelopes: envelopesOf(live, view.smoothing, hidden),
    layout: `${isLog}|${view.axis}|${looks}`,
    lines: live,
    numDead: behind.length,
  };
}

/**
 * Return one line for each lane of a metric, by name of the lane.
 *
 * @param {Line} line
 * @param {Store} store
 * @param {ChartView} view
 * @returns {(DrawnLine & { dead: DrawnLine[] })[]}
 */
function lanesOf(line, store, view) {
  /** @type {Map<string, Source[]>} */
  const byLane = new Map();
  for (const series of store.of(line.name)) {
    if (line.role && (series.role !== line.role || series.rank !== line.rank)) continue;
    const lane = `${series.role}|${series.rank}`;
    byLane.set(lane, [...(byLane.get(lane) ?? []), series]);
  }
  const many = byLane.size > 1;
  const lanes = [...byLane].sort(([a], [b]) => (a < b ? -1 : 1));
  return lanes.map(([lane, attempts], place) => {
    const [role, rank] = lane.split("|");
    const own = {
      ...line,
      id: `${line.name}@${lane}`,
      label: many ? laneName({ role, rank: Number(rank) }) : line.label,
      color: many && !line.fixed ? `--run-${place % 10}` : line.color,
    };
    const { column, dead } = historyOf(attempts, store, view);
    return { ...own, column, dead: dead.map((branch) => deadLine(own, branch, view.smoothing)) };
  });
}

/**
 * Join what the attempts have of one lane: what belongs to the history, and its dead branches.
 *
 * @param {Source[]} attempts
 * @param {Store} store
 * @param {ChartView} view
 * @returns {{ column: Column, dead: { series: AttemptPart, from: number }[] }}
 */
function historyOf(attempts, store, { smoothing, zoom }) {
  /** @type {AttemptPart[]} */
  const parts = attempts.map((series) => ({
    kind: series.kind,
    attempt: series.attempt,
    latest: series.latest,
    ...series.columns(smoothing, zoom && (store.windowOf?.(series.kind, zoom) ?? null)),
  }));
  const { clean, dead } = (store.branches ?? EVERYTHING).split(parts);
  /** @type {Column} */
  const column = { x: [], y: [], smooth: [], breaks: [], joins: [], n: 0, of: 0, latest: null };
  for (const { series: part, count, isCut } of clean) {
    const begin = column.x.length;
    if (begin && count) column.joins?.push(begin);
    if (!begin && count === part.x.length) {
      const { x, y, smooth, low, high, odd, counts, most } = part;
      Object.assign(column, { x, y, smooth, low, high, odd, counts, most });
    } else {
      column.x = [...column.x, ...part.x.slice(0, count)];
      column.y = [...column.y, ...part.y.slice(0, count)];
      column.smooth = [...column.smooth, ...part.smooth.slice(0, count)];
    }
    const breaks = breaksOf(part.x).filter((at) => at < count); // of each: attempts differ in how far apart their points are
    column.breaks = [...column.breaks, ...breaks.map((at) => at + begin)];
    column.latest = (isCut ? part.y[count - 1] : part.latest) ?? column.latest;
    column.n += count;
    column.of += count === part.x.length ? part.of : count;
  }
  // One average through the restored step, where every point is at hand to take it over.
  if (clean.length > 1 && parts.every((part) => part.isWhole)) column.smooth = smoothing.of(column.y);
  return { column, dead };
}

/**
 * Return a line of a dead branch, from the point at which it left the history.
 *
 * @param {Omit<DrawnLine, "column">} line
 * @param {{ series: AttemptPart, from: number }} branch
 * @param {Smoothing} smoothing
 * @returns {DrawnLine}
 */
function deadLine({ id, name, label, color }, { series: part, from }, smoothing) {
  const y = !smoothing.isNone && part.x.length > 2 ? part.smooth : part.y;
  const x = part.x.slice(from);
  const column = { x, y: y.slice(from), smooth: [], breaks: breaksOf(x), n: 0, of: 0, latest: null };
  return { id: `${id}@${part.attempt}`, name, label, color, attempt: part.attempt, isDead: true, column };
}

/** Put steps on the x axis; points whose place is not known yet are left out. */
function placeAll(/** @type {DrawnLine[]} */ lines, /** @type {Store} */ store, /** @type {string} */ axis) {
  /** @type {Map<number | null, Placed | null>} */
  const known = new Map();
  for (const line of lines) {
    const { attempt = null } = line;
    if (!known.has(attempt)) known.set(attempt, store.placesOf?.(axis, attempt) ?? null);
    const place = known.get(attempt);
    if (place) line.column = placed(axis === "time" ? paused(line.column) : line.column, place);
  }
}

/** Return a column of the clock: nothing ran between two attempts, so that no line leads from one to the next. */
function paused(/** @type {Column} */ column) {
  const breaks = new Set([...column.breaks, ...(column.joins ?? [])]);
  return { ...column, breaks: [...breaks].sort((a, b) => a - b) };
}

/**
 * Return a column with its points where `place` puts their steps: up to the first one whose place is not known.
 *
 * @param {Column} column
 * @param {Placed} place
 * @returns {Column}
 */
function placed(column, place) {
  /** @type {number[]} */
  const x = [];
  let last = -Infinity;
  for (const step of column.x) {
    const at = place(step);
    if (at === null) break;
    last = Math.max(at, last + Math.abs(last === -Infinity ? 0 : last) * 1e-15 + 1e-12); // uPlot wants x to rise
    x.push(last);
  }
  if (x.length === column.x.length) return { ...column, x };
  const y = column.y.slice(0, x.length);
  const smooth = column.smooth.slice(0, x.length);
  return { ...column, x, y, smooth, breaks: column.breaks.filter((at) => at < x.length) };
}

/**
 * Return what lies around the lines that are shown, where it is known.
 *
 * @param {DrawnLine[]} lines
 * @param {Smoothing} smoothing
 * @param {Set<string>} hidden
 * @returns {Envelope[]}
 */
function envelopesOf(lines, smoothing, hidden) {
  return lines.flatMap(({ id, color, column: { x, y, smooth, low, high, breaks } }) =>
    low && high && !hidden.has(id) ? [{ color, x, low, high, breaks, line: smoothing.isNone ? y : smooth }] : [],
  );
}

/**
 * Leave out what a log axis cannot show: zero and less, and a smoothed tail of zeros, which would stretch it endlessly.
 *
 * @param {Shown["data"]} data
 * @returns {Shown["data"]}
 */
function logSafe(data) {
  let floor = SMALLEST_LOG;
  const [xs, ...ys] = data;
  for (const column of ys) for (const y of column) if (y && y * LOG_DECADES > floor) floor = y * LOG_DECADES;
  const shown = (/** @type {Ys[number]} */ y) => (y === undefined ? y : y !== null && y >= floor ? y : null);
  return [xs, ...ys.map((column) => column.map(shown))];
}
