/**
 * The cards of a dashboard: one for each chart, moved by its handle and resized by its corner, with a pointer or with keys.
 * The cards stay while their order changes, so that nothing is drawn anew.
 */

import { Chart } from "../charts/chart.js";
import { copyOf, find } from "../dom.js";
import { fill, gettext } from "../format.js";
import { moved, resized, without } from "./dashboard-charts.js";
import { metricInfo, metricPlot, writeHead } from "./metric-plot.js";

const PLACES = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };
const SIZES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** @import { BoardChart } from "./dashboard-charts.js" */
/** @typedef {{ node: HTMLElement, chart: Chart | null, kind: string }} Card */

export class DashboardGrid {
  /**
   * @param {HTMLElement} place
   * @param {{ page: any, store: any, view: any, large: any, onChange: (charts: BoardChart[]) => void, onSay: (text: string) => void }} parts
   *   `onChange`: somebody has moved, resized or taken away a chart; `onSay`: what that did, in words
   */
  constructor(place, { page, store, view, large, onChange, onSay }) {
    this.place = place;
    this.page = page;
    this.store = store;
    this.view = view;
    this.large = large;
    this.onChange = onChange;
    this.onSay = onSay;
    /** @type {BoardChart[]} */
    this.charts = [];
    /** @type {Map<string, Card>} by metric */
    this.cards = new Map();
    this.mayChange = false;
  }

  /** Show these charts; those that are there stay, others are made or let go. */
  show(/** @type {BoardChart[]} */ charts, /** @type {boolean} */ mayChange) {
    this.charts = charts;
    this.mayChange = mayChange;
    const wanted = new Set(charts.map(({ metric }) => metric));
    for (const [metric, card] of this.cards) {
      if (wanted.has(metric)) continue;
      card.chart?.destroy();
      card.node.remove();
      this.cards.delete(metric);
    }
    charts.forEach(({ metric, width, height }, place) => {
      const card = this.cards.get(metric) ?? this.#card(metric);
      this.cards.set(metric, card);
      card.node.dataset.width = String(width);
      card.node.dataset.height = String(height);
      card.node.classList.toggle("is-fixed", !mayChange);
      if (this.place.children[place] !== card.node)
        this.place.insertBefore(card.node, this.place.children[place] ?? null);
    });
    this.fill();
  }

  /** Let all charts go. */
  clear() {
    this.show([], false);
  }

  /** Draw what the run has come to report by now. */
  fill() {
    for (const [metric, card] of this.cards) {
      const known = this.store.names.get(metric);
      find('[data-part="missing"]', card.node).hidden = Boolean(known);
      if (!known || card.chart) continue;
      const part = (/** @type {string} */ name) => find(`[data-part="${name}"]`, card.node);
      const parts = { body: part("body"), value: part("value"), points: part("points"), legend: part("legend") };
      card.chart = new Chart(parts, metricPlot(this.page, known), this.store, this.view);
    }
  }

  /** @returns {Card} */
  #card(/** @type {string} */ metric) {
    const node = copyOf('template[data-template="board-chart"]');
    const { label } = metricInfo(this.page, metric);
    node.dataset.metric = metric;
    writeHead(this.page, metric, node);
    const named = (/** @type {HTMLElement} */ control) => {
      control.setAttribute("aria-label", fill(control.dataset.label ?? "", { title: label }));
      return control;
    };
    named(find('button[data-action="full"]', node)).addEventListener("click", () => this.large.openMetric(metric));
    named(find("button[data-board-remove]", node)).addEventListener("click", () => {
      this.onChange(without(this.charts, metric));
      this.onSay(fill(gettext("%(title)s is taken away"), { title: label }));
    });
    const handle = named(find("button[data-board-move]", node));
    handle.addEventListener("keydown", (event) => this.#moveByKey(event, metric, label));
    handle.addEventListener("pointerdown", (event) => this.#drag(event, metric));
    const corner = named(find("button[data-board-size]", node));
    corner.addEventListener("keydown", (event) => this.#sizeByKey(event, metric, label));
    corner.addEventListener("pointerdown", (event) => this.#pull(event, metric));
    return { node, chart: null, kind: "" };
  }

  #moveByKey(/** @type {KeyboardEvent} */ event, /** @type {string} */ metric, /** @type {string} */ label) {
    const by = PLACES[event.key];
    if (by === undefined || !this.mayChange) return;
    event.preventDefault();
    const from = this.charts.findIndex((chart) => chart.metric === metric);
    this.onChange(moved(this.charts, metric, from + by));
    const focused = /** @type {HTMLElement} */ (event.currentTarget);
    focused.focus(); // moving the card has taken it
    const place = this.charts.findIndex((chart) => chart.metric === metric) + 1;
    this.onSay(
      fill(gettext("%(title)s: place %(place)s of %(count)s"), { title: label, place, count: this.charts.length }),
    );
  }

  #sizeByKey(/** @type {KeyboardEvent} */ event, /** @type {string} */ metric, /** @type {string} */ label) {
    const by = SIZES[event.key];
    const chart = this.charts.find((one) => one.metric === metric);
    if (!by || !chart || !this.mayChange) return;
    event.preventDefault();
    this.#resize(metric, chart.width + by[0], chart.height + by[1], label);
  }

  #resize(metric, width, height, label) {
    this.onChange(resized(this.charts, metric, { width, height }));
    const chart = this.charts.find((one) => one.metric === metric);
    this.onSay(fill(gettext("%(title)s: %(width)s wide, %(height)s high"), { ...chart, title: label }));
  }

  /** Follow the pointer: the card takes the place of the one under it. */
  #drag(/** @type {PointerEvent} */ event, /** @type {string} */ metric) {
    const card = this.cards.get(metric);
    if (!card || event.button !== 0 || !this.mayChange) return;
    card.node.classList.add("is-dragged");
    this.#follow(event, ({ clientX, clientY }) => {
      const under = document.elementFromPoint(clientX, clientY)?.closest(".board-card");
      const other = under?.dataset.metric;
      if (!under || other === undefined || other === metric || !this.cards.has(other)) return;
      const { left, width } = under.getBoundingClientRect();
      const isAfter = clientX > left + width / 2;
      const rest = without(this.charts, metric);
      const to = rest.findIndex((chart) => chart.metric === other) + (isAfter ? 1 : 0);
      if (this.charts[to]?.metric !== metric) this.onChange(moved(this.charts, metric, to));
    }).then(() => card.node.classList.remove("is-dragged"));
  }

  /** Follow the pointer with the lower right corner, by whole columns and rows. */
  #pull(/** @type {PointerEvent} */ event, /** @type {string} */ metric) {
    const card = this.cards.get(metric);
    const chart = this.charts.find((one) => one.metric === metric);
    if (!card || !chart || event.button !== 0 || !this.mayChange) return;
    const { clientX: fromX, clientY: fromY } = event;
    const { width, height } = card.node.getBoundingClientRect();
    const { label } = metricInfo(this.page, metric);
    this.#follow(event, ({ clientX, clientY }) => {
      const columns = chart.width * (1 + (clientX - fromX) / width);
      const rows = chart.height * (1 + (clientY - fromY) / height);
      const [next] = resized([chart], metric, { width: columns, height: rows });
      const now = this.charts.find((one) => one.metric === metric);
      if (now && (next.width !== now.width || next.height !== now.height))
        this.#resize(metric, next.width, next.height, label);
    });
  }

  /** Call `move` for each move of the pointer until it is let go. */
  #follow(/** @type {PointerEvent} */ event, /** @type {(event: PointerEvent) => void} */ move) {
    event.preventDefault(); // nothing is selected meanwhile
    const { pointerId } = event;
    /** @type {HTMLElement} */ (event.currentTarget).focus();
    const own = (/** @type {PointerEvent} */ next) => next.pointerId === pointerId && move(next);
    return new Promise((done) => {
      const end = () => {
        removeEventListener("pointermove", own);
        done(null);
      };
      addEventListener("pointermove", own);
      for (const type of ["pointerup", "pointercancel"]) addEventListener(type, end, { once: true });
    });
  }
}
