/** The charts of the page: a card a metric, a line a run, in the run's own color everywhere. */

import { Chart } from "../charts/chart.js";
import * as numbers from "../charts/numbers.js";
import { pickNow } from "../charts/pick.js";
import { savingIn, wireSaving } from "../charts/save.js";
import { copyOf, find } from "../dom.js";
import { el, fill, gettext } from "../format.js";
import { onKeys } from "../keys.js";
import { columnsFor } from "./asking.js";
import { marksOf } from "./marks.js";
import { among, said } from "./reading.js";
import { Tip } from "./tip.js";

const DASHES = [null, [6, 4], [2, 3], [8, 3, 2, 3], [1, 4]]; // the eleventh run's line is the first one dashed
const BASE_WIDTH = 2.2;
const MARK_KEYS = ["common", "checkpoint", "resume", "change", "capture", "alert", "note", "alarm", "good"];

export class Charts {
  /** @type {{ name: string, chart: Chart } | null} as large as the window */
  full = null;

  constructor({ page, store, view, query }) {
    this.page = page;
    this.store = store;
    this.view = view;
    this.query = query;
    this.cards = new Map(); // metric -> { card, chart }
    this.look = ""; // what lines hang on beside their points
    this.tip = new Tip(find("[data-tip]"));
    this.place = document.querySelector("[data-compare-charts]");
    const dialog = find('dialog[data-dialog="chart"]');
    dialog.addEventListener("close", () => {
      this.full?.chart.destroy();
      this.full = null;
      store.columns = columnsFor(this.#width());
      this.tip.hide();
    });
    onKeys({
      Enter: () => {
        const name = this.#current();
        return Boolean(name && pickNow(this.cards.get(name).chart));
      },
      f: () => {
        const name = this.#current();
        if (!name) return false;
        this.open(name);
        return true;
      },
      ArrowRight: () => this.#move(1),
      ArrowLeft: () => this.#move(-1),
      0: () => {
        if (!this.place || !view.zoom) return false;
        view.setZoom(null);
        return true;
      },
    });
    store.onRead = (names) => this.#draw(names);
    store.onUnplaced = (ids) => {
      const names = this.page.runs.filter((run) => ids.includes(run.id)).map((run) => run.short);
      view.setMissing(names.length ? view.axes[view.axis].missing(names.join(", ")) : "");
    };
    wireSaving(dialog, { chart: () => this.full?.chart ?? null, title: () => find("h2", dialog).textContent ?? "" });
  }

  /** Take the page's data: which runs, which metrics. Cards that are still wanted stay. */
  show(page) {
    this.page = page;
    this.baseGroup = page.runs.find((run) => run.isBase)?.group;
    this.store.follow(page.runs.map((run) => ({ ...run, groupIndex: this.#groupOf(run) })));
    this.view.end = page.numSteps;
    this.mark(page);
    const { place } = this;
    if (!place) return;
    const names = this.#names();
    for (const [name, { card, chart }] of this.cards) {
      if (names.includes(name)) continue;
      chart.destroy();
      card.remove();
      this.cards.delete(name);
    }
    const cards = names.map((name) => this.#card(name));
    if (place.children.length !== cards.length || cards.some((card, i) => place.children[i] !== card))
      place.replaceChildren(...cards);
    for (const [name, { chart }] of this.cards) chart.plot = this.#plot(name);
    if (this.full) this.full.chart.plot = this.#plot(this.full.name);
    this.#legend();
    const look = JSON.stringify([page.isGrouped, page.runs.map(lookOf)]);
    this.view.redraw(look !== this.look); // what only grew keeps its crosshair
    this.look = look;
    const empty = document.querySelector("[data-charts-empty]");
    if (empty) empty.hidden = names.length > 0;
    const seen = [...this.cards].filter(([, { chart }]) => chart.isSeen).map(([name]) => name);
    if (seen.length) this.store.want(seen);
  }

  /** Take what happened to the runs from the page; the legend names what there is. */
  mark(page) {
    this.page = page;
    this.view.marks = marksOf(page, this.view.axis);
    const types = new Set(this.view.marks.map(({ type }) => type));
    for (const type of MARK_KEYS)
      for (const key of document.querySelectorAll(`[data-${type}-key]`)) key.hidden = !types.has(type);
  }

  /** Show a metric as large as the window. */
  open(name) {
    const dialog = find('dialog[data-dialog="chart"]');
    this.full?.chart.destroy();
    find("h2", dialog).textContent = this.info(name).label;
    find("[data-part-of]", dialog).textContent = this.info(name).definition || name;
    if (!dialog.open) dialog.showModal();
    this.store.columns = columnsFor(innerWidth);
    this.store.want([name]);
    const parts = {
      body: find("[data-full-body]", dialog),
      points: find("[data-full-points]", dialog),
      saving: savingIn(dialog),
    };
    this.full = { name, chart: this.#chart(parts, name) };
    dialog.append(this.tip.node); // a dialog is above everything else
  }

  /** Show the page again instead of one chart as large as the window. */
  closeFull() {
    find('dialog[data-dialog="chart"]').close();
  }

  /** Return the metric that a chart is of. */
  metricOf(chart) {
    return [...this.cards].find(([, card]) => card.chart === chart)?.[0] ?? this.full?.name;
  }

  /** Return what is said of a metric. */
  info(name) {
    return this.page.words[name] ?? { label: name, unit: numbers.unitOf(name), unit_text: "", definition: "" };
  }

  /** Return the metrics that the page of this tab shows. */
  #names() {
    const { metrics, charts } = this.page;
    const kind = this.place?.dataset.compareCharts;
    if (kind === "timing") return metrics.filter((name) => name.startsWith("time/") || name.startsWith("throughput/"));
    if (kind === "verdict") {
      const chosen = (this.query.get("m") ?? "").split(",").filter((name) => metrics.includes(name));
      return chosen.length ? chosen : charts;
    }
    const needle = (this.query.get("q") ?? "").trim().toLowerCase();
    return metrics.filter((name) => `${name} ${this.info(name).label}`.toLowerCase().includes(needle));
  }

  /** Return the metrics of the verdict's charts, and all there are. */
  chosen() {
    return { shown: this.#names(), all: this.page.metrics, label: (name) => this.info(name).label };
  }

  #groups() {
    return this.page.isGrouped ? [...new Set(this.page.runs.map((run) => run.group))] : [];
  }

  #groupOf(run) {
    return this.page.isGrouped ? [...new Set(this.page.runs.map((one) => one.group))].indexOf(run.group) : -1;
  }

  #card(name) {
    if (this.cards.has(name)) return this.cards.get(name).card;
    const card = copyOf('template[data-template="chart"]');
    const of = (key) => find(`[data-of="${key}"]`, card);
    const info = this.info(name);
    card.dataset.metric = name;
    const title = find("h2", card);
    title.textContent = title.title = info.label;
    of("hint").textContent = [info.label === name ? "" : name, numbers.isInNumbers(info.unit) ? "" : info.unit_text]
      .filter(Boolean)
      .join(", ");
    of("hint").title = info.definition ? `${name}: ${info.definition}` : name;
    of("body").setAttribute(
      "aria-label",
      fill(gettext("Chart of %(title)s; the table has its numbers"), { title: info.label }),
    );
    find('[data-action="full"]', card).addEventListener("click", () => this.open(name));
    const chart = this.#chart({ body: of("body"), points: of("points") }, name, of("value"));
    new IntersectionObserver(
      (entries, observer) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        this.#soon(name);
      },
      { rootMargin: "200px" },
    ).observe(card);
    this.cards.set(name, { card, chart });
    return card;
  }

  /** Read what came into sight with one request, not one a chart. */
  #soon(name) {
    this.waiting ??= [];
    this.waiting.push(name);
    this.timer ??= setTimeout(() => {
      const names = this.waiting;
      this.waiting = [];
      this.timer = null;
      if (!this.full) this.store.columns = columnsFor(this.#width());
      this.store.want(names);
    }, 0);
  }

  /** Return how wide the charts are at most, in CSS pixels; 0 without any. */
  #width() {
    return Math.max(0, ...[...this.cards.values()].map(({ chart }) => chart.parts.body.clientWidth));
  }

  /** `value` is where the head of a card says what is under the crosshair, which all charts share. */
  #chart(parts, name, /** @type {HTMLElement | null} */ value = null) {
    const chart = new Chart(parts, this.#plot(name), this.store, this.view);
    chart.onCursor = (index, shown) => {
      const { left = -1, idx = null } = chart.uplot?.cursor ?? {};
      const at = left < 0 ? null : (index ?? idx); // new points are drawn under a pointer that rests
      if (value) this.#tell(chart, value, at, shown);
      this.#point(chart, at, shown);
    };
    return chart;
  }

  #tell(chart, node, index, shown) {
    const lines = index === null || !shown ? [] : this.#compared(shown);
    const base = lines.find((line) => this.#isBase(line));
    const text = lines.length ? among(lines, base, shown.data[0][index], chart.plot.unit) : "";
    if (node.textContent !== text) node.textContent = text;
  }

  /** Return the lines that stand for what is compared, the baseline's first. */
  #compared(shown) {
    const lines = shown.lines.filter((line) => !this.page.isGrouped || line.group !== undefined);
    return lines.toSorted((a, b) => this.#isBase(b) - this.#isBase(a));
  }

  #isBase({ run, group }) {
    return (this.page.isGrouped ? group === this.baseGroup : run?.isBase) ?? false;
  }

  #plot(name) {
    const isPoints = name.startsWith("eval/");
    const line = (key, { label, color, dash }, more) => ({
      name: `${key}|${name}`,
      label,
      color: `--run-${color % 10}`,
      dash: DASHES[dash % DASHES.length],
      fixed: true,
      ...more,
    });
    const lines = [];
    if (this.page.isGrouped) {
      for (const run of this.page.runs)
        lines.push(line(run.id, { ...run, label: run.short, dash: 0 }, { isGhost: true, run }));
      this.#groups().forEach((group, i) => {
        const { color, dash } = this.page.runs.find((run) => run.group === group);
        lines.push(line(`group:${i}`, { label: group, color, dash }, { isPlain: true, width: BASE_WIDTH, group }));
      });
    } else {
      // the base is drawn last, on top of the others
      for (const run of this.page.runs.toSorted((a, b) => a.isBase - b.isBase)) {
        lines.push(
          line(run.id, { ...run, label: run.short }, { isPoints, width: run.isBase ? BASE_WIDTH : undefined, run }),
        );
      }
    }
    return { lines, unit: this.info(name).unit };
  }

  #point(chart, index, shown) {
    if (index === null || !shown) {
      this.tip.hide(chart);
      return;
    }
    if (!chart.parts.body.matches(":hover")) return;
    const x = shown.data[0][index];
    const { unit } = chart.plot;
    const rows = this.#compared(shown).map((line) => ({
      label: line.label,
      color: line.color,
      text: said(line.column, x, unit),
    }));
    this.tip.show(
      chart,
      this.#placeText(
        x,
        chart.plot.lines.flatMap((line) => this.store.of(line.name)).find((line) => line.width)?.width,
      ),
      rows,
    );
  }

  /** Return what a column is of: a step, the steps that it holds, or a place on another axis. */
  #placeText(x, width) {
    const { axis, axes } = this.view;
    if (axis !== "step") return axes[axis].word(x);
    const half = (width - 1) / 2;
    const [first, last] = [x - half, x + half].map((step) => step.toLocaleString("en-US"));
    if (half <= 0) return fill(gettext("step %(step)s"), { step: first });
    return fill(gettext("steps %(first)s to %(last)s"), { first, last });
  }

  #draw(names) {
    for (const [name, { card, chart }] of this.cards) {
      if (!names.has(name)) continue;
      chart.invalidate();
      const has = this.page.runs.some((run) => this.store.of(`${run.id}|${name}`).length);
      const empty = find('[data-of="empty"]', card);
      empty.hidden = has;
      empty.textContent = has ? "" : gettext("None of these runs has measured it yet.");
    }
    if (this.full && names.has(this.full.name)) this.full.chart.invalidate();
  }

  #legend() {
    const rows = this.page.isGrouped
      ? this.#groups().map((group) => ({
          label: group,
          color: this.page.runs.find((run) => run.group === group).color,
        }))
      : this.page.runs.map((run) => ({ label: run.short, color: run.color }));
    for (const node of document.querySelectorAll("[data-line-legend], [data-full-legend]")) {
      const isWanted = node.matches("[data-full-legend]") || this.page.isGrouped;
      node.replaceChildren(
        ...(isWanted ? rows : []).map((row) =>
          el(
            "span",
            { class: "legend" },
            el("i", { class: "swatch is-round", "data-run-color": row.color % 10 }),
            row.label,
          ),
        ),
      );
    }
  }

  #current() {
    return document.activeElement?.closest("[data-metric]")?.dataset.metric;
  }

  #move(by) {
    const cards = [...document.querySelectorAll("[data-compare-charts] [data-metric]")];
    const at = cards.findIndex((card) => card.contains(document.activeElement));
    if (at < 0) return false;
    cards[Math.min(Math.max(at + by, 0), cards.length - 1)].focus();
    return true;
  }
}

const lookOf = ({ id, color, dash, isBase, group }) => [id, color, dash, isBase, group];
