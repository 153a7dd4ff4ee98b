/** Counters of a trace as strips on the same axis: memory and other quantities that were sampled. */

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { get } from "../api.js";
import { color, faded, onTheme } from "../charts/colors.js";
import { el, fill, gettext } from "../format.js";
import * as numbers from "../charts/numbers.js";

const MOST = 6;
const HEIGHT = 44;
const REST_MS = 150;
const POINTS = 2000;

export class Counters {
  constructor({ page, view, clock }) {
    Object.assign(this, { page, view, clock });
    this.held = document.querySelector("[data-counters]");
    this.strips = [];
    view.addEventListener("drawn", () => this.#follow());
    onTheme(() => this.#rebuild());
  }

  /** Add the counters of a layer, those with the most samples first. */
  add(layer, who) {
    for (const series of [...layer.series].sort((a, b) => b.samples - a.samples)) {
      if (this.strips.length >= MOST || series.samples < 2) continue;
      const title = [who, series.device >= 0 ? fill(gettext("GPU %(n)s"), { n: series.device }) : "", series.name].filter(Boolean).join(" · ");
      const last = el("span", { class: "num faint" });
      const plot = el("div", { class: "trace-counter-plot" });
      const row = el("div", { class: "trace-counter" }, el("div", { class: "trace-counter-name", title }, el("span", { class: "cut" }, title), last), plot);
      this.held.append(row);
      this.strips.push({ layer: layer.id, series, plot, last, data: [[0], [null]], uplot: null, read: null });
    }
    this.#follow();
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
    this.waiting = setTimeout(() => { for (const strip of this.strips) this.#load(strip); }, REST_MS);
  }

  async #load(strip) {
    const { from, to } = this.view.view;
    const room = (to - from) / 2;
    const wide = { from: Math.max(from - room, this.view.extent.from - 1), to: Math.min(to + room, this.view.extent.to + 1) };
    const { read } = strip;
    if (read && read.from <= Math.max(from, this.view.extent.from) && read.to >= Math.min(to, this.view.extent.to) && (read.isAll || read.to - read.from < (to - from) * 4)) return;
    const asked = (strip.turn = (strip.turn ?? 0) + 1);
    try {
      const answer = await get(`${this.page.api}/layers/${strip.layer}/series/${strip.series.id}?from=${this.clock.absolute(wide.from)}&to=${this.clock.absolute(wide.to)}&points=${POINTS}`);
      if (asked !== strip.turn) return;
      const begin = this.clock.offset(answer.begin);
      strip.read = { ...wide, isAll: answer.of === answer.t.length };
      strip.data = [answer.t.map((t) => begin + t), answer.v];
      strip.uplot?.setData(strip.data, false);
      strip.uplot?.setScale("x", { min: from, max: to });
      const values = answer.v.filter((v) => v !== null);
      strip.last.textContent = values.length ? fill(gettext("most %(value)s"), { value: numbers.metric(values.reduce((a, b) => Math.max(a, b)), strip.series.unit) }) : "";
    } catch {
      strip.last.textContent = gettext("could not be read");
    }
  }

  #build(strip, width) {
    strip.uplot?.destroy();
    const line = color("--text-3");
    strip.uplot = new uPlot({
      width, height: HEIGHT, padding: [2, 0, 2, 0], legend: { show: false }, cursor: { show: false }, axes: [{ show: false }, { show: false }],
      scales: { x: { time: false, auto: false }, y: { range: (_plot, low, high) => [Math.min(low ?? 0, 0), Math.max(high ?? 1, 1e-9) * 1.05] } },
      series: [{}, { stroke: line, width: 1, fill: faded(line, 0.18), points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) }],
    }, strip.data, strip.plot);
    const { from, to } = this.view.view;
    strip.uplot.setScale("x", { min: from, max: to });
  }

  #rebuild() {
    for (const strip of this.strips) if (strip.uplot) this.#build(strip, strip.plot.clientWidth);
  }
}
