/** One chart of the page as large as the window, with its files: the same for every tab that shows cards. */

import { Chart } from "../charts/chart.js";
import { savingIn, wireSaving } from "../charts/save.js";
import { find } from "../dom.js";
import { onKeys } from "../keys.js";
import { metricInfo, metricPlot } from "./metric-plot.js";

/** @import { Plot } from "../charts/plot" */

export class LargeChart {
  constructor({ page, store, feed, view, query }) {
    this.page = page;
    this.store = store;
    this.feed = feed;
    this.view = view;
    this.query = query;
    /** @type {Chart | null} */
    this.chart = null;
    /** @type {() => void} it was opened or closed */
    this.onToggle = () => {};
    this.dialog = find('dialog[data-dialog="chart"]');
    wireSaving(this.dialog, { chart: () => this.chart, title: () => find("h2", this.dialog).textContent ?? "" });
    this.dialog.addEventListener("close", () => {
      this.chart?.destroy();
      this.chart = null;
      this.feed.loader.releaseFine();
      this.query.set("chart", "");
      this.onToggle();
    });
    onKeys({
      f: () => {
        const button = document.activeElement?.closest(".chart-card")?.querySelector('button[data-action="full"]');
        if (!(button instanceof HTMLElement)) return false;
        button.click();
        return true;
      },
    });
  }

  /** Have what the address names opened, unless a chart is open; each tab knows its own. */
  restore(/** @type {(key: string) => void} */ open) {
    const key = this.query.get("chart");
    if (key && !this.chart) open(key);
  }

  /** Show a metric of the run; nothing where it has not been reported. */
  openMetric(/** @type {string} */ name) {
    const metric = this.store.names.get(name);
    if (!metric) return;
    const { label, definition } = metricInfo(this.page, name);
    this.open({ key: name, title: label, hint: definition || name, plot: metricPlot(this.page, metric) });
  }

  /**
   * Show a plot; `key` is what the address calls it.
   *
   * @param {{ key: string, title: string, hint: string, plot: Plot }} what
   */
  open({ key, title, hint, plot }) {
    const { dialog } = this;
    const part = (/** @type {string} */ name) => find(`[data-part="${name}"]`, dialog);
    this.chart?.destroy();
    find("h2", dialog).textContent = title;
    part("hint").textContent = hint;
    if (!dialog.open) dialog.showModal();
    this.feed.loader.holdFine(plot.lines.map(({ name }) => name));
    this.query.set("chart", key);
    const parts = {
      body: part("body"),
      value: part("value"),
      points: part("points"),
      legend: part("legend"),
      saving: savingIn(dialog),
    };
    this.chart = new Chart(parts, plot, this.store, this.view);
    this.onToggle();
  }
}
