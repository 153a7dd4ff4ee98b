/** Counters of a trace as strips on the same axis: memory and other quantities that were sampled. */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { get } from "../api.js";
import { color, faded, onTheme } from "../charts/colors.js";
import * as numbers from "../charts/numbers.js";
import { find } from "../dom.js";
import { el, fill, gettext, gpuName } from "../format.js";

const USUAL = 6; // shown until people choose
const MOST = 24; // at once: each of them is read again whenever the window rests
const HEIGHT = 44;
const REST_MS = 150;
const REFUSED_MS = 10_000; // what could not be read is not asked for again with every move
const POINTS = 2000;

export class Counters extends EventTarget {
  constructor({ page, view, clock, query }) {
    super();
    this.page = page;
    this.view = view;
    this.clock = clock;
    this.query = query;
    this.held = find("[data-counters]");
    this.known = new Map(); // "layer.series" -> { key, layer, series, title }, in the order in which they came
    this.strips = [];
    /** @type {(() => void)[]} */
    this.implied = []; // what asks a layer for its curves
    const chosen = query.get("counters");
    this.chosen = chosen === null ? null : new Set(chosen.split(",").filter(Boolean));
    view.addEventListener("drawn", () => this.#follow());
    onTheme(() => this.#rebuild());
  }

  /**
   * Add the counters of a layer, those with the most samples first; until people choose, the first few are shown, and as many as
   * there may be of a layer that holds nothing else.
   */
  add(layer, who) {
    const usual = layer.lanes.some(({ events }) => events) ? USUAL : MOST;
    for (const series of [...layer.series].sort((a, b) => b.samples - a.samples)) {
      if (series.samples < 2) continue;
      const key = `${layer.id}.${series.id}`;
      const title = [who, series.process, series.device >= 0 ? gpuName(series.device) : "", series.name]
        .filter(Boolean)
        .join(" · ");
      this.known.set(key, { key, layer: layer.id, series, title, path: `series/${series.id}` });
      if (this.chosen ? this.chosen.has(key) && this.strips.length < MOST : this.strips.length < usual)
        this.#show(this.known.get(key));
    }
    this.#follow();
    if (!layer.lanes.some(({ kind, events }) => kind === "stream" && events)) return;
    this.implied.push(() => this.#addTracks(layer, who));
    if ([...(this.chosen ?? [])].some((key) => key.startsWith(`${layer.id}.`) && key.includes("-"))) this.offer();
  }

  /** Learn of the curves that layers imply: not before somebody may want them, since it takes a look at all events. */
  offer() {
    for (const add of this.implied.splice(0)) add();
  }

  /** Offer the curves that a layer's events imply; they are drawn once people choose them. */
  async #addTracks(layer, who) {
    try {
      const { tracks } = await get(`${this.page.api}/layers/${layer.id}/tracks`);
      for (const track of tracks) {
        const key = `${layer.id}.${track.key}`;
        const title = [who, track.process, gpuName(track.device), trackName(track)].filter(Boolean).join(" · ");
        const series = { id: track.key, unit: track.unit, samples: null };
        this.known.set(key, { key, layer: layer.id, series, title, path: `tracks/${track.key}`, isTrack: true });
        if (this.chosen?.has(key) && this.strips.length < MOST) this.#show(this.known.get(key));
      }
      this.#follow();
      this.dispatchEvent(new Event("known"));
    } catch {
      // the menu stands without them; whoever opens it again finds them after a reload
    }
  }

  isShown(key) {
    return this.strips.some((strip) => strip.key === key);
  }

  /** Show a counter, or take it away; returns false where too many are shown already. */
  toggle(key, isShown) {
    if (isShown && this.strips.length >= MOST) return false;
    if (isShown) this.#show(this.known.get(key));
    else this.#hide(key);
    this.chosen = new Set(this.strips.map((strip) => strip.key));
    this.query.set("counters", [...this.chosen].join(",") || "none");
    this.#follow();
    return true;
  }

  #show({ key, layer, series, title, path }) {
    const last = el("span", { class: "num faint" });
    const plot = el("div", { class: "trace-counter-plot" });
    const row = el(
      "div",
      { class: "trace-counter" },
      el("div", { class: "trace-counter-name", title }, el("span", { class: "cut" }, title), last),
      plot,
    );
    this.held.append(row);
    this.strips.push({ key, layer, series, path, row, plot, last, data: [[0], [null]], uplot: null, read: null });
  }

  #hide(key) {
    for (const strip of this.strips.filter((one) => one.key === key)) {
      strip.uplot?.destroy();
      strip.row.remove();
    }
    this.strips = this.strips.filter((strip) => strip.key !== key);
  }

  #follow() {
    if (!this.strips.length) return;
    const { from, to } = this.view.view;
    for (const strip of this.strips) {
      const width = strip.plot.clientWidth;
      if (!width) continue;
      if (!strip.uplot) this.#build(strip, width);
      else if (strip.uplot.width !== width) strip.uplot.setSize({ width, height: HEIGHT });
      strip.uplot.setScale("x", { min: from, max: to });
    }
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      for (const strip of this.strips) this.#load(strip);
    }, REST_MS);
  }

  async #load(strip) {
    const { from, to } = this.view.view;
    const room = (to - from) / 2;
    const wide = {
      from: Math.max(from - room, this.view.extent.from - 1),
      to: Math.min(to + room, this.view.extent.to + 1),
    };
    const { read } = strip;
    if (
      read &&
      read.from <= Math.max(from, this.view.extent.from) &&
      read.to >= Math.min(to, this.view.extent.to) &&
      (read.isAll || read.to - read.from < (to - from) * 4)
    )
      return;
    if (performance.now() < (strip.refusedUntil ?? 0)) return;
    const asked = (strip.turn ?? 0) + 1;
    strip.turn = asked;
    try {
      const answer = await get(
        `${this.page.api}/layers/${strip.layer}/${strip.path}?from=${this.clock.absolute(wide.from)}&to=${this.clock.absolute(wide.to)}&points=${POINTS}`,
      );
      if (asked !== strip.turn) return;
      const begin = this.clock.offset(answer.begin);
      strip.read = { ...wide, isAll: answer.of === answer.t.length };
      strip.data = [answer.t.map((t) => begin + t), answer.v];
      strip.uplot?.setData(strip.data, false);
      strip.uplot?.setScale("x", { min: from, max: to });
      const values = answer.v.filter((v) => v !== null);
      strip.last.textContent = values.length
        ? fill(gettext("most %(value)s"), {
            value:
              numbers.metric(
                values.reduce((a, b) => Math.max(a, b)),
                { B: "bytes", "B/s": "bytes" }[strip.series.unit] ?? strip.series.unit,
              ) + (strip.series.unit === "B/s" ? "/s" : ""),
          })
        : "";
    } catch {
      strip.refusedUntil = performance.now() + REFUSED_MS;
      strip.last.textContent = gettext("could not be read");
    }
  }

  #build(strip, width) {
    strip.uplot?.destroy();
    const line = color("--text-3");
    strip.uplot = new uPlot(
      {
        width,
        height: HEIGHT,
        padding: [2, 0, 2, 0],
        legend: { show: false },
        cursor: { show: false },
        axes: [{ show: false }, { show: false }],
        scales: {
          x: { time: false, auto: false },
          y: { range: (_plot, low, high) => [Math.min(low ?? 0, 0), Math.max(high ?? 1, 1e-9) * 1.05] },
        },
        series: [
          {},
          {
            stroke: line,
            width: 1,
            fill: faded(line, 0.18),
            points: { show: false },
            paths: uPlot.paths.stepped?.({ align: 1 }),
          },
        ],
      },
      strip.data,
      strip.plot,
    );
    const { from, to } = this.view.view;
    strip.uplot.setScale("x", { min: from, max: to });
  }

  #rebuild() {
    for (const strip of this.strips) if (strip.uplot) this.#build(strip, strip.plot.clientWidth);
  }
}

/** Return what a curve is called beside its device. */
function trackName({ kind, name, stream }) {
  if (kind === "queue") return fill(gettext("queue depth, stream %(n)s"), { n: stream });
  return kind === "bandwidth" ? fill(gettext("bandwidth, %(name)s"), { name }) : gettext("utilisation");
}
