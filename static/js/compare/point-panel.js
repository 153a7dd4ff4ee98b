/** A clicked point beside the charts: each run's value there, and the way to its step. *Back* closes what a click has opened. */

import * as numbers from "../charts/numbers.js";
import { find } from "../dom.js";
import { el, fill, gettext, grouped, messageOf } from "../format.js";
import { pointsAt } from "./point.js";

export class PointPanel {
  constructor({ charts, view, query }) {
    this.charts = charts;
    this.view = view;
    this.query = query;
    this.node = find("aside[data-point-panel]");
    this.key = ""; // of what is shown: x and metric, as in the address
    this.x = 0;
    this.metric = "";
    /** @type {HTMLElement | null} had the focus when a point was picked: it gets it back */
    this.before = null;
    this.giveUp = new AbortController();
    view.onPick = ({ x, chart }) => this.pick(x, charts.metricOf(chart));
    find("button[data-panel-close]", this.node).addEventListener("click", () => this.close());
    for (const button of this.node.querySelectorAll("button[data-panel-by]"))
      button.addEventListener("click", () => this.#move(Number(button.dataset.panelBy)));
    this.node.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault(); // and not to the chart beside the one that was left
      this.#move(by);
    });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.key && !document.querySelector("dialog[open]")) this.close();
    });
  }

  /** Open what the address says, or close. */
  restore() {
    const asked = new URLSearchParams(location.search).get("point") ?? "";
    const [x, metric] = [asked.slice(0, asked.indexOf(",")), asked.slice(asked.indexOf(",") + 1)];
    if (x !== "" && Number(x) >= 0 && this.charts.page.metrics.includes(metric)) this.#show(Number(x), metric);
    else this.#hide();
  }

  /** Open a point of a metric's chart. */
  pick(x, metric) {
    const key = `${this.#isStep ? Math.max(0, Math.round(x)) : Math.max(0, x)},${metric}`;
    const isOpening = !this.key;
    if (isOpening) this.query.push("point", key);
    else this.query.set("point", key);
    this.#show(Number(key.slice(0, key.indexOf(","))), metric);
    if (!isOpening) return;
    this.before = /** @type {HTMLElement | null} */ (document.activeElement);
    this.charts.closeFull(); // what is as large as the window would hide it
    this.node.focus({ preventScroll: true });
  }

  /** Close it: where it was opened here, the way *back* does. */
  close() {
    if (history.state?.isPushed) history.back();
    else this.leave();
  }

  /** Close it where it stands: its place means nothing on another axis. */
  leave() {
    if (!this.key) return;
    this.query.set("point", "");
    this.#hide();
  }

  get #isStep() {
    return this.view.axis === "step";
  }

  #move(by) {
    if (this.key && this.#isStep) this.pick(this.x + by, this.metric);
  }

  #hide() {
    this.giveUp.abort();
    this.key = "";
    const hadFocus = this.node.contains(document.activeElement);
    this.node.hidden = true;
    document.body.classList.remove("has-step");
    if (hadFocus) this.before?.focus({ preventScroll: true });
    this.before = null;
  }

  async #show(x, metric) {
    this.giveUp.abort();
    this.giveUp = new AbortController();
    const { signal } = this.giveUp;
    const { label, unit } = this.charts.info(metric);
    [this.x, this.metric, this.key] = [x, metric, `${x},${metric}`];
    this.node.hidden = false;
    document.body.classList.add("has-step");
    const { axes, axis } = this.view;
    find("h2", this.node).textContent = label;
    find("[data-panel-place]", this.node).textContent = this.#isStep
      ? fill(gettext("step %(step)s"), { step: grouped(x) })
      : axes[axis].word(x);
    for (const button of this.node.querySelectorAll("button[data-panel-by]")) button.hidden = !this.#isStep;
    const place = find("[data-point-runs]", this.node);
    try {
      const points = await pointsAt({ runs: this.charts.page.runs, metric, x, axis }, signal);
      if (!signal.aborted) place.replaceChildren(tableOf(points, unit));
    } catch (error) {
      if (!signal.aborted) place.replaceChildren(el("p", { class: "bad" }, messageOf(error)));
    }
  }
}

function tableOf(points, unit) {
  const rows = points.map(({ run, step, value }) =>
    el(
      "tr",
      {},
      el(
        "th",
        { scope: "row", title: run.name },
        el("i", { class: "swatch is-round", "data-run-color": run.color % 10 }),
        " ",
        run.short,
        run.isBase ? el("small", { class: "faint" }, ` ${gettext("baseline")}`) : null,
      ),
      el("td", { class: "num" }, numbers.metric(value?.value ?? null, unit)),
      el("td", { class: "num" }, step === null ? gettext("not there") : wayTo(run, step)),
    ),
  );
  const heads = [gettext("Run"), gettext("Value"), gettext("Step")];
  const head = heads.map((text, i) => el("th", { scope: "col", class: i ? "num" : "" }, text));
  return el("table", { class: "table" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
}

const wayTo = (run, step) => el("a", { class: "link", href: `${run.url}/charts?point=${step}` }, grouped(step));
