/** All metrics of the run, grouped by prefix; readings of machines and processes stand last, as System. */

import { Chart } from "../charts/chart.js";
import * as numbers from "../charts/numbers.js";
import { copyOf, field, find } from "../dom.js";
import { el, fill, gettext, write } from "../format.js";
import { onKeys } from "../keys.js";

export class ChartTab {
  constructor({ page, store, feed, view, query }) {
    this.page = page;
    this.store = store;
    this.feed = feed;
    this.view = view;
    this.query = query;
    /** @type {Chart | null} as large as the window */
    this.full = null;
    this.cards = new Map(); // name -> { card, chart }
    this.groups = new Map();
    this.isShown = false;
    this.search = find("input[data-chart-search]");
    this.search.value = query.get("q") ?? "";
    this.search.addEventListener("input", () => this.filter(this.search.value));
    store.on("names", () => {
      if (this.isShown) this.#build();
    });
    const dialog = find('dialog[data-dialog="chart"]');
    dialog.addEventListener("close", () => {
      this.full?.destroy();
      this.full = null;
    });
    onKeys({
      f: () => this.#current() && this.open(this.#current()),
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
    for (const chart of this.view.charts) chart.resize();
  }

  /** Show metrics whose name or label contains `text`. */
  filter(text) {
    this.search.value = text;
    this.query.set("q", text);
    this.#build();
  }

  /** Return the names of charts that can be seen now. */
  names() {
    return [...this.cards.keys()];
  }

  #info(name) {
    return this.page.metrics[name] ?? { label: name, unit: numbers.unitOf(name), unit_text: "", definition: "" };
  }

  #build() {
    const needle = this.search.value.trim().toLowerCase();
    const names = [...this.store.names.values()];
    const found = names.filter(({ name }) => `${name} ${this.#info(name).label}`.toLowerCase().includes(needle));
    const byGroup = new Map();
    for (const metric of found.sort(
      (a, b) => placeOf(groupOf(a)) - placeOf(groupOf(b)) || a.name.localeCompare(b.name),
    )) {
      byGroup.set(groupOf(metric), [...(byGroup.get(groupOf(metric)) ?? []), metric]);
    }
    for (const [name, { card, chart }] of this.cards) {
      if (found.some((metric) => metric.name === name)) continue;
      chart.destroy();
      card.remove();
      this.cards.delete(name);
    }
    const place = find("[data-chart-groups]");
    const sections = [...byGroup].map(([group, metrics]) => this.#group(group, metrics));
    if (place.children.length !== sections.length || sections.some((section, i) => place.children[i] !== section))
      place.replaceChildren(...sections);
    write(
      field("metric-count"),
      needle
        ? fill(gettext("%(shown)s of %(all)s metrics"), { shown: found.length, all: names.length })
        : fill(gettext("%(all)s metrics"), { all: names.length }),
    );
    const empty = field("charts-empty");
    empty.hidden = found.length > 0;
    write(
      empty.firstElementChild,
      needle
        ? fill(gettext("No metric matches “%(text)s”."), { text: needle })
        : gettext("No metric yet. The first comes with the first step."),
    );
    const count = find('[data-count="charts"]');
    write(count, names.length ? String(names.length) : "");
  }

  #group(group, metrics) {
    if (!this.groups.has(group)) {
      const title = titleOf(group);
      const grid = el("div", { class: "charts" });
      this.groups.set(group, {
        section: el(
          "section",
          { class: "run-group", "aria-label": title },
          el("h2", {}, title, " ", el("span", { class: "faint num" })),
          grid,
        ),
        grid,
      });
    }
    const { section, grid } = this.groups.get(group);
    write(section.querySelector("h2 span"), String(metrics.length));
    section.dataset.span = String(Math.min(metrics.length, 4));
    const cards = metrics.map((metric) => this.#card(metric));
    if (grid.children.length !== cards.length || cards.some((card, i) => grid.children[i] !== card))
      grid.replaceChildren(...cards);
    return section;
  }

  #card(metric) {
    if (this.cards.has(metric.name)) return this.cards.get(metric.name).card;
    const card = copyOf('template[data-template="chart"]');
    const info = this.#info(metric.name);
    const part = (/** @type {string} */ name) => find(`[data-part="${name}"]`, card);
    find("h2", card).textContent = info.label;
    card.dataset.metric = metric.name;
    const name = info.label === metric.name ? "" : metric.name;
    part("hint").textContent = [name, numbers.isInNumbers(info.unit) ? "" : info.unit_text].filter(Boolean).join(", ");
    part("hint").title = info.definition ? `${metric.name}: ${info.definition}` : metric.name;
    part("body").setAttribute(
      "aria-label",
      fill(gettext("Chart of %(title)s; the newest value is in its head"), { title: info.label }),
    );
    find('button[data-action="full"]', card).addEventListener("click", () => this.open(metric.name));
    const parts = { body: part("body"), value: part("value"), points: part("points"), legend: part("legend") };
    const chart = new Chart(parts, this.#plot(metric, info), this.store, this.view);
    new IntersectionObserver(
      (entries, observer) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        this.feed.want([metric.name]);
      },
      { rootMargin: "300px" },
    ).observe(card);
    this.cards.set(metric.name, { card, chart });
    return card;
  }

  #plot(metric, info) {
    const color = `--run-${this.page.color % 10}`;
    const limits = this.page.chips
      .filter((chip) => chip.name === metric.name && chip.limit !== null)
      .map((chip) => ({ value: chip.limit, label: fill(gettext("limit %(value)s"), { value: chip.limit }) }));
    return {
      lines: [{ name: metric.name, label: info.label, color, isPoints: metric.name.startsWith("eval/") }],
      unit: info.unit,
      limits,
      band: metric.kind === "metric" ? this.page.bands[metric.name] : undefined,
      isTime: metric.kind === "system",
    };
  }

  /** Show one chart as large as the window. */
  open(name) {
    const dialog = find('dialog[data-dialog="chart"]');
    const metric = this.store.names.get(name);
    if (!metric) return;
    this.full?.destroy();
    const info = this.#info(name);
    const part = (/** @type {string} */ key) => find(`[data-part="${key}"]`, dialog);
    find("h2", dialog).textContent = info.label;
    part("hint").textContent = info.definition || name;
    if (!dialog.open) dialog.showModal();
    this.feed.want([name]);
    this.full = new Chart(
      { body: part("body"), value: part("value"), points: part("points"), legend: part("legend") },
      this.#plot(metric, info),
      this.store,
      this.view,
    );
  }

  #current() {
    return document.activeElement?.closest("[data-metric]")?.dataset.metric;
  }

  #move(by) {
    const cards = [...document.querySelectorAll("[data-chart-groups] [data-metric]")];
    const at = cards.findIndex((card) => card.contains(document.activeElement));
    if (at < 0) return false;
    cards[Math.min(Math.max(at + by, 0), cards.length - 1)].focus();
    return true;
  }
}

const ORDER = ["reward", "eval", "loss", "kl", "policy", "response", "groups", "sync", "time", "throughput", "train"];

/** Where a group stands: what people look at first, then others, machines last. */
function placeOf(group) {
  if (group === "~system") return 1000;
  const at = ORDER.indexOf(group);
  return at >= 0 ? at : 100 + group.charCodeAt(0);
}

function titleOf(group) {
  const titles = {
    reward: gettext("Reward"),
    eval: gettext("Held-out"),
    loss: gettext("Loss"),
    kl: gettext("KL to reference"),
    policy: gettext("Policy"),
    response: gettext("Responses"),
    groups: gettext("Groups of samples"),
    sync: gettext("Weight sync"),
    time: gettext("Time"),
    throughput: gettext("Speed"),
    train: gettext("Progress"),
    "~system": gettext("System"),
  };
  return titles[group] ?? group;
}

function groupOf({ kind, name }) {
  return kind === "system" ? "~system" : name.includes("/") ? name.slice(0, name.indexOf("/")) : gettext("other");
}
