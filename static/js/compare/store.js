/**
 * The lines of all compared runs, as ../charts/chart.js asks for them: `of("r-1|reward/mean")` gives one run's clean history. Where
 * runs are grouped, `of("group:0|reward/mean")` is the mean over the runs of the first group. The console smooths every point
 * and gives each column of the screen its least and most, so that what is drawn does not depend on the zoom.
 */

import { getBytes } from "../api.js";
import { COLUMNS_TYPE, readLines } from "../charts/columns.js";
import { columnsFor, parts } from "./asking.js";
import { meanOf } from "./mean.js";

const AT_ONCE = 2; // requests: the console reads in threads

export class CompareStore {
  constructor(view) {
    this.view = view;
    this.runs = [];
    this.columns = columnsFor(0);
    this.series = new Map();
    this.reach = new Map(); // as series: from where to where the points go that were read at any zoom
    this.reachAxis = view.axis;
    this.means = new Map();
    this.wanted = new Set();
    this.loaded = new Map(); // metric -> in how many columns
    /** @type {(names: Set<string>) => void} */
    this.onRead = () => {};
    /** @type {(ids: string[]) => void} these runs have not measured the x axis */
    this.onUnplaced = () => {};
    /** @type {(error: unknown) => void} */
    this.onProblem = () => {};
    this.asking = new AbortController();
  }

  /** Follow these runs, each { id, … , groupIndex }; what was read stays for those that are still here. */
  follow(runs) {
    const here = new Set(runs.map((run) => run.id));
    const isNew = runs.some((run) => !this.runs.some((known) => known.id === run.id));
    for (const key of this.series.keys()) if (!here.has(key.slice(0, key.indexOf("|")))) this.series.delete(key);
    this.runs = runs;
    this.means.clear();
    if (isNew) this.loaded.clear();
  }

  /** Return the line of a run (or of a group's mean) and a metric, in a list of one or none. */
  of(key) {
    if (key.startsWith("group:")) {
      if (!this.means.has(key)) this.means.set(key, this.#mean(key));
      return [this.means.get(key)].filter(Boolean);
    }
    return [this.series.get(key)].filter(Boolean);
  }

  /** Read these metrics unless they are here, in as many columns. */
  want(names) {
    for (const name of names) this.wanted.add(name);
    return this.#load(names.filter((name) => (this.loaded.get(name) ?? 0) < this.columns));
  }

  /** Read everything again that charts show: live runs have gone on. */
  refresh() {
    return this.#load([...this.wanted]);
  }

  /** Read with another x axis, smoothing or zoom; what is still being read for the old ones is called off. */
  reread() {
    this.asking.abort();
    this.asking = new AbortController();
    this.loaded.clear();
    return this.#load([...this.wanted]);
  }

  /** Read metrics in parts: the first alone, so that its chart is there soon, the others as many at once as the console takes. */
  async #load(names) {
    const { signal } = this.asking;
    const { columns } = this;
    const [first = [], ...waiting] = parts(names);
    await this.#read(first, columns, signal);
    const one = async () => {
      for (let part = waiting.shift(); part && !signal.aborted; part = waiting.shift())
        await this.#read(part, columns, signal);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, one));
  }

  async #read(part, columns, signal) {
    if (!part.length || signal.aborted) return;
    for (const name of part) this.loaded.set(name, columns);
    try {
      const { lines, unplaced } = readLines(await getBytes(this.#url(part, columns), COLUMNS_TYPE, signal));
      if (signal.aborted) return;
      for (const line of lines) {
        this.series.set(`${line.run}|${line.name}`, line);
        this.#reached(line);
      }
      this.means.clear();
      this.onProblem(null);
      this.onUnplaced(unplaced);
      this.onRead(new Set(part));
    } catch (error) {
      if (signal.aborted) return;
      for (const name of part) this.loaded.delete(name);
      this.onProblem(error);
    }
  }

  /** Note how far a line goes, on this axis. */
  #reached({ run, name, x }) {
    if (this.reachAxis !== this.view.axis) this.reach.clear();
    this.reachAxis = this.view.axis;
    if (!x.length) return;
    const key = `${run}|${name}`;
    const [first, last] = this.reach.get(key) ?? [Infinity, -Infinity];
    this.reach.set(key, [Math.min(first, x[0]), Math.max(last, x.at(-1))]);
  }

  #url(names, columns) {
    const query = new URLSearchParams({
      runs: this.runs.map((run) => run.id).join(","),
      metrics: names.join(","),
      columns: String(columns),
      x: this.view.axis,
    });
    const { text } = this.view.smoothing;
    if (text) query.set("smooth", text);
    const { zoom } = this.view;
    if (zoom) {
      query.set("from", String(zoom.min));
      query.set("to", String(zoom.max));
    }
    return `/api/compare/columns?${query}`;
  }

  #mean(key) {
    const at = key.indexOf("|");
    const group = Number(key.slice("group:".length, at));
    const name = key.slice(at + 1);
    const members = this.runs
      .filter((run) => run.groupIndex === group)
      .map((run) => this.series.get(`${run.id}|${name}`))
      .filter(Boolean)
      .map(({ run, x, y, smooth }) => ({ x, y, smooth: smooth ?? y, reach: this.reach.get(`${run}|${name}`) }));
    const mean = meanOf(members);
    if (!mean.x.length) return null;
    const smooth = meanOf(members.map((line) => ({ ...line, y: line.smooth })));
    return new MeanLine(name, mean, smooth.y, members.length);
  }
}

/** The mean of a group's lines, and of what they are smoothed to; it has no extremes of its own. */
class MeanLine {
  kind = "metric";
  attempt = 1;
  role = "driver";
  rank = 0;

  /** `most` is how many runs have the metric: before one has begun and after it has ended, the mean is of fewer. */
  constructor(name, { x, y, counts }, smooth, most) {
    this.name = name;
    this.x = x;
    this.y = y;
    this.counts = counts;
    this.smooth = smooth;
    this.most = most;
  }

  get latest() {
    return this.y.at(-1) ?? null;
  }

  columns() {
    const { x, y, counts, most, smooth } = this;
    const smoothed = smooth.length === y.length ? smooth : y;
    return { x, y, smooth: smoothed, counts, most, n: x.length, of: x.length, isWhole: false };
  }
}
