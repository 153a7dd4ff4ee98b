/**
 * What the page knows of one run. Series, spans and the rest are read by HTTP, each complete through some frame; frames then
 * follow one by one. Every part remembers its own `through`, so that each frame counts once for each part, whatever arrives first.
 */

import { Branches, EVERYTHING } from "../charts/branches.js";
import { decode, Series } from "../charts/series.js";
import { StepAxis, stepFrom } from "../charts/step-axis.js";
import { Lanes } from "../timeline/lanes.js";

const KEPT_FRAMES = 2000; // recent frames, replayed into parts that were read while they arrived,
const KEPT_VALUES = 400_000; // and no more than these numbers in them: a step of a large run has thousands
const TOO_LONG = 4000; // points; longer series are read again, thinned by the server

const seriesKey = ({ kind = "metric", name, role = "driver", rank = 0, attempt = 1 }) =>
  `${kind}|${name}|${role}|${rank}|${attempt}`;

export class RunStore extends EventTarget {
  constructor() {
    super();
    this.seq = 0; // of the newest frame applied
    this.base = null; // frames base + 1 … seq are kept in `frames`
    this.frames = [];
    this.numValues = 0; // in them
    this.series = new Map();
    this.loaded = new Map(); // metric name -> through, of names that were read, also those without points yet
    this.names = new Map(); // name -> { kind, name, roles } of every metric that is known to exist
    this.branches = EVERYTHING;
    this.lanes = new Lanes();
    this.lanesThrough = null;
    this.axes = new Map(); // name of an x axis -> StepAxis
    this.hasAllSpans = true; // false: of a long run, only the longest spans were read
    this.dirty = new Map(); // topic -> Set of details, told once per animation frame
    this.flushing = 0;
  }

  /** Take the attempts of a header: which of their steps count. */
  setAttempts(attempts) {
    const next = new Branches(attempts);
    const isSame = next.signature === this.branches.signature;
    this.branches = next; // how far each came changes all the time
    if (isSame) return;
    this.lanes.setBranches(next);
    this.touch("branches");
    this.touch("spans");
  }

  /** Say that something changed; listeners of `topic` are called once per animation frame (never in a background tab). */
  touch(topic, detail = "") {
    if (!this.dirty.has(topic)) this.dirty.set(topic, new Set());
    this.dirty.get(topic).add(detail);
    this.flushing ||= requestAnimationFrame(() => this.flush());
  }

  /** Tell listeners now. */
  flush() {
    this.flushing = 0;
    const told = this.dirty;
    this.dirty = new Map();
    for (const [topic, details] of told) this.dispatchEvent(new CustomEvent(topic, { detail: details }));
  }

  /** Call `listener` with the Set of details whenever `topic` changed. */
  on(topic, listener) {
    this.addEventListener(topic, (event) => listener(event.detail));
  }

  /** Take the answer of /series; returns false if frames are missing between it and what is kept, so that it must be read again. */
  takeSeries(names, answer, smoothing) {
    if (!this.#reaches(answer.through_seq)) return false;
    for (const [key, series] of this.series) if (names.includes(series.name)) this.series.delete(key);
    for (const name of names) this.loaded.set(name, answer.through_seq);
    for (const found of answer.series) {
      const series = new Series(found);
      series.set(this.#inSeconds(found), answer.through_seq, smoothing);
      this.series.set(seriesKey(found), series);
      this.know(found);
    }
    for (const frame of this.frames) if (frame.seq > answer.through_seq) this.#applySeries(frame, new Set(names));
    for (const name of names) this.touch("series", name);
    return true;
  }

  /** Drop the points of these metrics; that they exist stays known. */
  forget(names) {
    const gone = new Set(names);
    for (const name of gone) this.loaded.delete(name);
    for (const [key, series] of this.series) if (gone.has(series.name)) this.series.delete(key);
  }

  /** Take finer points of the window [from, to] for series that are there already. */
  takeDetail(answer, window) {
    for (const found of answer.series) {
      const series = this.series.get(seriesKey(found));
      if (!series) continue;
      const through = answer.through_seq;
      series.setDetail(this.#inSeconds(found), through, window);
      for (const frame of this.frames) if (frame.seq > through) this.#replayDetail(frame, series);
      this.touch("series", series.name);
    }
  }

  /** Take the answer of /axis: where steps stand on another x axis. */
  takeAxis({ x, step, place }) {
    this.axes.set(x, new StepAxis(step, place));
    this.touch("axis", x);
  }

  /** Return true if it is known that the run has not measured an x axis. */
  lacks(axis) {
    if (axis === "time") return this.lanesThrough !== null && !this.lanes.steps.size;
    return this.axes.get(axis)?.isKnown === false;
  }

  /** Return the function that gives the place of a step (of an attempt's dead branch) on an x axis; null: steps are places. */
  placesOf(axis, attempt) {
    if (axis === "step") return null;
    if (axis === "time") return this.lanes.clockOfSteps(attempt);
    const found = this.axes.get(axis);
    return (step) => found?.place(step) ?? null;
  }

  /** Return the stretch of x of series of a kind that a zoom shows, null where that is not known. */
  windowOf(kind, { min, max, axis }) {
    if (axis === (kind === "system" ? "time" : "step")) return { from: min, to: max };
    const place = kind === "system" ? null : this.placesOf(axis, null);
    if (!place) return null;
    return { from: Math.max(0, this.stepAt(axis, min) - 1), to: this.stepAt(axis, max) };
  }

  /** Return the first step whose place on an x axis is at least `x`, the last one known without any. */
  stepAt(axis, x) {
    const place = this.placesOf(axis, null);
    if (!place) return Math.round(x);
    const last = axis === "time" ? Math.max(0, ...this.lanes.steps.keys()) : (this.axes.get(axis)?.steps.at(-1) ?? 0);
    return stepFrom(place, x, last);
  }

  /**
   * Take the answer of /spans; returns false if it must be read again. Of a long run it holds only the longest spans: then
   * `recent` is an answer with all of them from `cut` (seconds of the lanes) on.
   *
   * @param {any} answer
   * @param {any} [recent]
   */
  takeSpans(answer, recent = null, cut = Infinity) {
    const last = recent ?? answer;
    if (!this.#reaches(last.through_seq)) return false;
    this.lanes.clear();
    for (const column of answer.lanes) this.lanes.add(column, answer.phases, { before: cut });
    for (const column of recent?.lanes ?? []) this.lanes.add(column, recent.phases, { from: cut });
    this.lanesThrough = last.through_seq;
    this.hasAllSpans = answer.n === answer.of;
    this.numAllSpans = answer.of;
    for (const frame of this.frames) this.#applySpans(frame);
    this.touch("spans");
    return true;
  }

  /** Note that a metric exists. */
  know({ kind = "metric", name, role = "driver", rank = 0 }) {
    if (!name) return;
    if (!this.names.has(name)) {
      this.names.set(name, { kind, name, lanes: new Set() });
      this.touch("names", name);
    }
    this.names.get(name).lanes.add(`${role}|${rank}`);
  }

  /** Return the series of a metric, all roles, ranks and attempts. */
  of(name) {
    return [...this.series.values()].filter((series) => series.name === name);
  }

  /** Apply a frame. Returns "applied", "old" (known already) or "gap" (one before it is missing). */
  apply(frame) {
    if (frame.seq <= this.seq) return "old";
    if (this.base !== null && frame.seq !== this.seq + 1) return "gap";
    this.base ??= frame.seq - 1;
    this.seq = frame.seq;
    this.frames.push(frame);
    this.numValues += valuesOf(frame);
    while (this.frames.length > 1 && (this.frames.length > KEPT_FRAMES || this.numValues > KEPT_VALUES)) {
      const old = this.frames.shift();
      this.numValues -= valuesOf(old);
      this.base = old.seq;
    }
    this.#applySeries(frame, null);
    this.#applySpans(frame);
    for (const topic of ["samples", "notes", "states", "artifacts", "captures", "logs"]) {
      for (const item of frame[topic] ?? []) this.touch(topic, item);
    }
    this.touch("frame", frame.seq);
    return "applied";
  }

  /**
   * Start to follow after frame `seq`, or after an earlier one if a part was read before that frame was stored; returns
   * which. Parts that reach further pass over what they have.
   */
  startAt(seq) {
    this.seq = Math.min(seq, this.lanesThrough ?? Infinity, ...this.loaded.values());
    this.base = this.seq;
    this.frames = [];
    this.numValues = 0;
    return this.seq;
  }

  /** Forget everything that came from frames; the caller reads it again. */
  reset() {
    this.series.clear();
    this.loaded.clear();
    this.axes.clear();
    this.lanes.clear();
    this.lanesThrough = null;
    this.base = null;
    this.seq = 0;
    this.frames = [];
    this.numValues = 0;
  }

  #reaches(through) {
    return this.base === null || through >= this.base;
  }

  #inSeconds(found) {
    if (found.kind !== "system") return found;
    return { ...found, x: found.x.map((ns) => Number(ns) / 1e9) };
  }

  /** Yield { head, xs, values } of every column of a frame. */
  *#columns(frame) {
    for (const [kind, columns] of [
      ["metric", frame.metrics],
      ["system", frame.system],
    ]) {
      for (const { role, rank, steps, t, values } of columns ?? []) {
        const xs = kind === "metric" ? steps : t.map((ns) => Number(ns) / 1e9);
        for (const [name, ys] of Object.entries(values)) {
          yield { head: { kind, name, role, rank, attempt: frame.attempt }, xs, ys };
        }
      }
    }
  }

  #applySeries(frame, only) {
    for (const { head, xs, ys } of this.#columns(frame)) {
      this.know(head);
      if (!this.loaded.has(head.name) || (only && !only.has(head.name))) continue;
      const key = seriesKey(head);
      if (!this.series.has(key)) {
        const fresh = new Series(head);
        fresh.through = this.loaded.get(head.name);
        this.series.set(key, fresh);
      }
      const series = this.series.get(key);
      if (frame.seq <= series.through) continue;
      ys.forEach((y, i) => {
        if (y !== null) series.push(xs[i], decode(y), frame.seq);
      });
      series.isStale ||= series.n > TOO_LONG;
      this.touch("series", head.name);
    }
    for (const series of this.series.values()) {
      if (!only || only.has(series.name)) series.through = Math.max(series.through, frame.seq);
    }
  }

  #replayDetail(frame, series) {
    for (const { head, xs, ys } of this.#columns(frame)) {
      if (seriesKey(head) !== seriesKey(series)) continue;
      ys.forEach((y, i) => {
        if (y !== null) series.pushDetail(xs[i], decode(y));
      });
    }
  }

  #applySpans(frame) {
    if (this.lanesThrough === null || frame.seq <= this.lanesThrough) return;
    for (const column of frame.spans ?? []) this.lanes.add({ ...column, attempt: frame.attempt });
    this.lanesThrough = frame.seq;
    if (frame.spans?.length) this.touch("spans");
  }
}

/** Return how many numbers a frame brings. */
function valuesOf(frame) {
  let count = 0;
  for (const { values } of [...(frame.metrics ?? []), ...(frame.system ?? [])]) {
    for (const name in values) count += values[name].length;
  }
  return count;
}
