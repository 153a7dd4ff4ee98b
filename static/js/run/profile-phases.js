/** The phases of a capture's steps, as the run's own spans tell them: there at once, before any file has arrived. */

import { onTheme } from "../charts/colors.js";
import { find } from "../dom.js";
import { el, fill, gettext, write } from "../format.js";
import { phaseLegend } from "./legend.js";
import { PhasePainter } from "./painter.js";

const MOST_STEPS = 6; // columns of the table; more steps are summed up

export class CapturePhases {
  constructor({ store, feed, phases }) {
    this.store = store;
    this.feed = feed;
    this.phases = phases;
    this.canvas = find('canvas[data-canvas="capture"]');
    this.painter = new PhasePainter(this.canvas, phases, { laneHeight: 25, detailHeight: 16, gap: 6, labelWidth: 92 });
    this.lanes = store.lanes;
    store.on("spans", () => this.#draw());
    onTheme(() => this.#draw());
    new ResizeObserver(() => this.#draw()).observe(this.canvas.parentElement ?? this.canvas);
  }

  /** Have the run's spans. */
  wake() {
    this.feed.wantSpans().then(() => this.#draw());
  }

  /** Show the steps of a capture. */
  async show(capture) {
    const isOther = capture.id !== this.capture?.id;
    this.capture = capture;
    if (isOther) this.lanes = this.store.lanes;
    this.#draw();
    if (isOther && capture.steps && !this.store.hasAllSpans && !this.#isWhole(capture)) await this.#readWindow(capture);
  }

  /** Of a long run the page holds only its newest steps in full; older ones are read by their time. */
  #isWhole(capture) {
    const kept = this.store.lanes.latestSteps(12);
    const there = this.store.lanes.steps.get(capture.steps[0]);
    return kept && there && there[0] >= kept[0];
  }

  async #readWindow(capture) {
    const first = this.store.lanes.steps.get(capture.steps[0]);
    const last = this.store.lanes.steps.get(capture.steps[1]);
    if (!first || !last) return;
    const found = await this.feed.spanWindow({ from: first[0], to: last[1] });
    if (!found || this.capture.id !== capture.id) return;
    this.lanes = found;
    this.#draw();
  }

  #window() {
    if (!this.capture?.steps || this.capture.state === "withdrawn") return null;
    let from = Infinity;
    let to = -Infinity;
    for (let step = this.capture.steps[0]; step <= this.capture.steps[1]; step += 1) {
      const known = this.lanes.steps.get(step);
      if (!known) continue;
      from = Math.min(from, known[0]);
      to = Math.max(to, known[1]);
    }
    return to > from ? { from, to } : null;
  }

  #draw() {
    if (!this.capture || find('[data-panel="profile"]').hidden || find("[data-profile]").hidden) return;
    const extent = this.#window();
    const empty = find('[data-field="capture-empty"]');
    empty.hidden = Boolean(extent);
    this.canvas.hidden = !extent;
    find("[data-capture-legend]").hidden = !extent;
    if (!extent) {
      write(empty.firstElementChild, this.#why());
      write(find('[data-field="capture-table-note"]'), "");
      this.#table([], []);
      return;
    }
    const lanes = this.lanes.sorted.filter(({ rows }) => rows.some((row) => row?.length));
    const height = this.painter.needed(lanes);
    if (this.height !== height) this.canvas.style.height = `${height}px`;
    this.height = height;
    this.painter.resize();
    this.painter.paint({ lanes, window: extent, extent, zero: extent.from });
    phaseLegend(
      find("[data-capture-legend]"),
      this.phases,
      new Set(this.lanes.totals(extent.from, extent.to, lanes).keys()),
    );
    this.#steps(lanes);
  }

  #why() {
    if (this.capture.state === "withdrawn") return gettext("It was withdrawn before its first step.");
    if (this.capture.state === "failed") return gettext("None of its steps has been measured.");
    if (!this.capture.steps) return gettext("The phases of its steps appear here while they are recorded.");
    return fill(gettext("The phases of step %(step)s appear here once it begins."), { step: this.capture.steps[0] });
  }

  #unmeasured() {
    if (this.capture.state === "withdrawn") return gettext("Nothing was recorded.");
    return this.capture.state === "failed" ? gettext("Not measured.") : gettext("Not measured yet.");
  }

  /** Seconds per phase in each step, over the lane that leads: the driver's, which sees every phase from begin to end. */
  #steps(lanes) {
    const lane = lanes.find(({ role }) => role === "driver") ?? lanes[0];
    const [first, last] = this.capture.steps;
    const known = [];
    for (let step = first; step <= last; step += 1) if (this.lanes.steps.has(step)) known.push(step);
    const isFew = known.length <= MOST_STEPS;
    const groups = isFew ? known.map((step) => [step]) : [known];
    const columns = groups.map((steps) => {
      const from = Math.min(...steps.map((step) => this.lanes.steps.get(step)[0]));
      const to = Math.max(...steps.map((step) => this.lanes.steps.get(step)[1]));
      return {
        title: isFew ? String(steps[0]) : gettext("mean"),
        count: steps.length,
        wall: (to - from) / steps.length,
        sums: this.#sums(lane, steps),
      };
    });
    write(
      find('[data-field="capture-table-note"]'),
      lane.role === "driver" ? gettext("seconds, seen by the driver") : gettext("seconds"),
    );
    this.#table(
      columns,
      [...this.phases.values()].filter(({ key }) => columns.some(({ sums }) => sums.has(key))),
    );
  }

  #sums(lane, steps) {
    const sums = new Map();
    const row = lane.rows[0];
    const wanted = new Set(steps);
    for (let i = 0; i < row.length; i += 1) {
      if (wanted.has(row.step[i]))
        sums.set(row.phase[i], (sums.get(row.phase[i]) ?? 0) + (row.end[i] - row.start[i]) / steps.length);
    }
    return sums;
  }

  #table(columns, phases) {
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, gettext("Phase")),
      ...columns.map(({ title }) =>
        el(
          "th",
          { scope: "col", class: "num" },
          title === gettext("mean") ? title : fill(gettext("Step %(step)s"), { step: title }),
        ),
      ),
    );
    find("[data-capture-table-head]").replaceChildren(...(columns.length ? [head] : []));
    const cell = (seconds) =>
      el("td", { class: "num" }, seconds === undefined ? "—" : seconds < 0.0005 ? "< 0.001" : seconds.toFixed(3));
    const rows = phases.map(({ key, label }) =>
      el(
        "tr",
        {},
        el("td", {}, el("span", { class: "legend" }, el("i", { class: "swatch", "data-phase": key }), label)),
        ...columns.map(({ sums }) => cell(sums.get(key))),
      ),
    );
    if (columns.length)
      rows.push(
        el(
          "tr",
          { class: "run-capture-wall" },
          el("td", {}, gettext("Wall time")),
          ...columns.map(({ wall }) => cell(wall)),
        ),
      );
    else rows.push(el("tr", {}, el("td", { class: "faint" }, this.#unmeasured())));
    find("[data-capture-table]").replaceChildren(...rows);
  }
}
