/**
 * The series of all compared runs, as ../charts/chart.js asks for them: `of("r-1|reward/mean")` gives one run's clean history. Where
 * runs are grouped, `of("group:0|reward/mean")` is the mean over the runs of the first group.
 */

import { get } from "../api.js";
import { Series } from "../charts/series.js";
import { meanOf } from "./mean.js";

const POINTS = 500;
const NAMES_PER_REQUEST = 12;

export class CompareStore {
  constructor(view) {
    this.view = view;
    this.runs = [];
    this.axis = "step";
    this.series = new Map();
    this.means = new Map();
    this.wanted = new Set();
    this.loaded = new Set();
    /** @type {(names: Set<string>) => void} */
    this.onRead = () => {};
    /** @type {(error: unknown) => void} */
    this.onProblem = () => {};
    this.generation = 0;
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

  /** Return the series of a run (or of a group's mean) and a metric, in a list of one or none. */
  of(key) {
    if (key.startsWith("group:")) {
      if (!this.means.has(key)) this.means.set(key, this.#mean(key));
      return [this.means.get(key)].filter(Boolean);
    }
    return [this.series.get(key)].filter(Boolean);
  }

  /** Read these metrics unless they are here. */
  want(names) {
    for (const name of names) this.wanted.add(name);
    const missing = names.filter((name) => !this.loaded.has(name));
    return this.#load(missing);
  }

  /** Read everything again that charts show: live runs have gone on. */
  refresh() {
    return this.#load([...this.wanted]);
  }

  /** Read with another x axis, smoothing or zoom; all of it, because one answer holds them all. */
  reread() {
    this.generation += 1;
    this.loaded.clear();
    return this.#load([...this.wanted]);
  }

  async #load(names) {
    const { generation } = this;
    for (let i = 0; i < names.length; i += NAMES_PER_REQUEST) {
      const part = names.slice(i, i + NAMES_PER_REQUEST);
      for (const name of part) this.loaded.add(name);
      try {
        const weight = this.view.smoothing;
        const answer = await get(this.#url(part));
        if (generation !== this.generation) return;
        for (const found of answer.series) this.#take(found, weight);
        this.means.clear();
        this.onProblem(null);
        this.onRead(new Set(part));
      } catch (error) {
        for (const name of part) this.loaded.delete(name);
        this.onProblem(error);
      }
    }
  }

  #take(found, weight) {
    const key = `${found.run}|${found.name}`;
    const series = new Series({ name: found.name, role: "driver", rank: 0 });
    series.set(found, 0, weight);
    this.series.set(key, series);
  }

  #url(names) {
    const query = new URLSearchParams({
      runs: this.runs.map((run) => run.id).join(","),
      metrics: names.join(","),
      points: String(POINTS),
      smooth: String(this.view.smoothing),
      x: this.axis,
    });
    const { zoom } = this.view;
    if (zoom && this.axis === "step") {
      query.set("from", String(Math.floor(zoom.min)));
      query.set("to", String(Math.ceil(zoom.max)));
    }
    return `/api/compare/series?${query}`;
  }

  #mean(key) {
    const at = key.indexOf("|");
    const group = Number(key.slice("group:".length, at));
    const name = key.slice(at + 1);
    const members = this.runs
      .filter((run) => run.groupIndex === group)
      .map((run) => this.series.get(`${run.id}|${name}`))
      .filter(Boolean);
    const column = meanOf(members.map((series) => ({ x: series.x, y: series.y })));
    if (!column.x.length) return null;
    const series = new Series({ name, role: "driver", rank: 0 });
    series.set({ ...column, of: column.x.length }, 0, 0);
    return series;
  }
}
