/** All metrics of the run in sections by prefix: search, pins, folding, keys. */

import { Chart } from "../charts/chart.js";
import { copyOf, field, find } from "../dom.js";
import { fill, gettext, grouped, ngettext, write } from "../format.js";
import { onKeys } from "../keys.js";
import { CardWall } from "./card-wall.js";
import { KeptNames } from "./kept-names.js";
import { metricFilter } from "./metric-filter.js";
import { sectionsOf } from "./metric-groups.js";
import { metricInfo, metricPlot, writeHead } from "./metric-plot.js";

export class ChartTab {
  constructor({ page, store, feed, view, query, large }) {
    this.page = page;
    this.store = store;
    this.feed = feed;
    this.view = view;
    this.query = query;
    this.large = large;
    this.isShown = false;
    /** @type {(metric: string) => void} somebody wants it on a dashboard */
    this.onAdd = () => {};
    this.pins = new KeptNames(`pitwall-pinned-metrics-${page.project}`);
    this.folds = new KeptNames(`pitwall-folded-charts-${page.project}`);
    this.wall = new CardWall(find("[data-chart-groups]"), {
      make: (metric) => this.#card(metric),
      onNear: (names) => this.feed.hold("charts", names),
      onFold: (key) => {
        this.folds.toggle(key);
        this.#build();
      },
      onPin: (key) => this.#pin(key),
    });
    /** @type {(name: string, label: string) => boolean} what the search meant when it last meant something */
    this.matches = () => true;
    this.search = find("input[data-chart-search]");
    this.expression = find("button[data-chart-expression]");
    this.#listenToSearch();
    store.on("names", () => {
      if (!this.isShown) return;
      this.#build();
      if (this.isActive()) large.restore((name) => large.openMetric(name)); // a link to one chart
    });
    onKeys({
      ArrowRight: () => this.#move(1),
      ArrowLeft: () => this.#move(-1),
      0: () => {
        if (!this.isActive()) return false;
        view.setZoom(null);
        return true;
      },
    });
  }

  isActive() {
    return !find('[data-panel="charts"]').hidden;
  }

  show() {
    this.isShown = true;
    this.#build();
    this.large.restore((name) => this.large.openMetric(name));
  }

  /** Release the cards of a tab that is left. */
  hide() {
    if (this.isShown) this.wall.update();
  }

  /** Show metrics whose name or label contains `text`. */
  filter(text) {
    this.search.value = text;
    this.#setExpression(false);
    this.#searched();
  }

  #listenToSearch() {
    this.search.value = this.query.get("q") ?? "";
    this.#setExpression(this.query.get("re") === "1");
    this.search.addEventListener("input", () => this.#searched());
    this.expression.addEventListener("click", () => {
      this.#setExpression(!this.#isExpression);
      this.#searched();
    });
  }

  get #isExpression() {
    return this.expression.getAttribute("aria-pressed") === "true";
  }

  #setExpression(isExpression) {
    this.expression.setAttribute("aria-pressed", String(isExpression));
  }

  #searched() {
    this.query.set("q", this.search.value);
    this.query.set("re", this.#isExpression ? "1" : "");
    this.#build();
  }

  #build() {
    const { matches, problem } = metricFilter(this.search.value, this.#isExpression);
    this.matches = matches ?? this.matches;
    const all = [...this.store.names.values()];
    const found = all.filter(({ name }) => this.matches(name, metricInfo(this.page, name).label));
    this.wall.show(
      sectionsOf(found, (name) => this.pins.over(name) !== null),
      { isFolded: (key) => this.folds.has(key), isPinned: (key) => this.pins.has(key) },
    );
    this.#tellProblem(problem, found.length);
    this.#tell(found.length, all.length, problem);
  }

  #tellProblem(problem, shown) {
    const told = field("charts-search-problem");
    told.hidden = !problem;
    write(told.firstElementChild, shown ? `${problem} ${gettext("The charts stay as they were.")}` : problem);
    this.search.setAttribute("aria-invalid", String(Boolean(problem)));
  }

  #tell(shown, all, problem) {
    const needle = this.search.value.trim();
    write(
      field("metric-count"),
      needle
        ? fill(gettext("%(shown)s of %(all)s metrics"), { shown: grouped(shown), all: grouped(all) })
        : fill(ngettext("%(all)s metric", "%(all)s metrics", all), { all: grouped(all) }),
    );
    const empty = field("charts-empty");
    empty.hidden = shown > 0;
    let reason = ["finished", "failed", "stopped"].includes(this.page.header.state)
      ? gettext("This run reported no metric.")
      : gettext("No metric yet. The first comes with the first step.");
    if (problem) reason = gettext("No chart is shown: the text before it matched no metric.");
    else if (needle) reason = fill(gettext("No metric matches “%(text)s”."), { text: needle });
    write(empty.firstElementChild, reason);
    const count = find('[data-count="charts"]');
    write(count, all ? String(all) : "");
  }

  /** Pin a metric or a prefix; where a wider prefix is pinned that covers it, let that go. */
  #pin(name) {
    this.pins.toggle(this.pins.over(name) ?? name);
    this.#build();
    for (const [shown, { node }] of this.wall.cards)
      find('button[data-action="pin"]', node).setAttribute("aria-pressed", String(this.pins.over(shown) !== null));
  }

  #card(metric) {
    const card = copyOf('template[data-template="chart"]');
    const part = (/** @type {string} */ name) => find(`[data-part="${name}"]`, card);
    card.dataset.metric = metric.name;
    writeHead(this.page, metric.name, card);
    find('button[data-action="full"]', card).addEventListener("click", () => this.large.openMetric(metric.name));
    find('button[data-action="add"]', card).addEventListener("click", () => this.onAdd(metric.name));
    const pin = find('button[data-action="pin"]', card);
    pin.setAttribute("aria-pressed", String(this.pins.over(metric.name) !== null));
    pin.addEventListener("click", () => this.#pin(metric.name));
    const parts = { body: part("body"), value: part("value"), points: part("points"), legend: part("legend") };
    const chart = new Chart(parts, metricPlot(this.page, metric), this.store, this.view);
    return { node: card, release: () => chart.destroy() };
  }

  #current() {
    return document.activeElement?.closest("[data-chart-groups] [data-metric]")?.dataset.metric;
  }

  #move(by) {
    const names = this.wall.names;
    const current = this.#current();
    const at = current ? names.indexOf(current) : -1;
    if (at < 0) return false;
    this.wall.reveal(names[Math.min(Math.max(at + by, 0), names.length - 1)])?.focus({ preventScroll: true });
    return true;
  }
}
