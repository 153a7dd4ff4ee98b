/** The charts of a sweep: parallel coordinates and a scatter over the same ranges, which the address and the table follow. */

import { find } from "../dom.js";
import { el, fill, gettext, ngettext } from "../format.js";
import { Query } from "../query.js";
import { Axis, Brush } from "./axis.js";
import { Parallel, rangeFields } from "./parallel.js";
import { Scatter } from "./scatter.js";

const COMPARED = 50; // runs that Compare takes

/** @import { SweepColumn, SweepRun } from "./axis.js" */

export class SweepCharts {
  /** @param {string} compareUrl */
  constructor(compareUrl) {
    this.compareUrl = compareUrl;
    this.query = new Query();
    this.brush = new Brush();
    /** @type {SweepColumn[]} */
    this.columns = [];
    /** @type {SweepRun[]} */
    this.runs = [];
    /** @type {Map<string, Axis>} */
    this.axes = new Map();
    this.drawn = "";
    this.parallel = new Parallel(find("[data-parallel]"), (id, range) => this.#brushed([[id, range]]));
    this.scatter = new Scatter(find("[data-chart]"), find("[data-caption]"), (ranges) => this.#brushed(ranges));
    this.selects = Object.fromEntries(["x", "y", "color"].map((name) => [name, find(`select[data-pick="${name}"]`)]));
    for (const [name, select] of Object.entries(this.selects))
      select.addEventListener("change", () => {
        this.query.set(name, select.value);
        this.#draw();
      });
    find("[data-axes]").addEventListener("change", () => {
      const chosen = [...find("[data-axes]").querySelectorAll("input:checked")].map((box) => box.value);
      this.query.set("axes", chosen.join(","));
      this.#draw();
    });
    find("button[data-brush-clear]").addEventListener("click", () => {
      this.brush.ranges.clear();
      this.#brushed([]);
    });
  }

  /** Take the page's data ({columns, runs}) and draw if anything in them is new. */
  show(/** @type {{ columns: SweepColumn[], runs: SweepRun[] }} */ { columns, runs }) {
    const text = JSON.stringify([columns, runs]);
    if (text === this.drawn) {
      this.#mark(); // the rows of the table may be new ones
      return;
    }
    this.drawn = text;
    this.columns = columns;
    this.runs = runs;
    this.axes = new Map(columns.map((column) => [column.id, new Axis(column, runs)]));
    this.brush.read(this.query.get("brush") ?? "", this.axes);
    this.#choices();
    this.#draw();
  }

  /** Take ranges from a chart or a field; null takes that of its column away. */
  #brushed(/** @type {[id: string, range: [number, number] | null][]} */ ranges) {
    for (const [id, range] of ranges) this.brush.set(id, range);
    this.query.set("brush", this.brush.toText());
    this.#draw();
  }

  #choices() {
    const choices = (/** @type {SweepColumn[]} */ of) => of.map(({ id, label }) => el("option", { value: id }, label));
    this.selects.x.replaceChildren(...choices(this.columns));
    this.selects.y.replaceChildren(...choices(this.columns));
    this.selects.color.replaceChildren(el("option", { value: "" }, gettext("run")), ...choices(this.columns));
    const shown = this.#shownIds();
    find("[data-axes]").replaceChildren(
      ...this.columns.map(({ id, label }) =>
        el(
          "label",
          { class: "menu-item" },
          el("input", { type: "checkbox", value: id, checked: shown.includes(id) }),
          el("span", { class: "cut", title: label }, label),
        ),
      ),
    );
  }

  /** Return the columns that are axes: those of the address, else the knobs and the best value. */
  #shownIds() {
    const asked = (this.query.get("axes") ?? "").split(",").filter((id) => this.axes.has(id));
    if (asked.length) return asked;
    return this.columns.filter(({ id, isKnob }) => isKnob || id === "best").map(({ id }) => id);
  }

  #picked(/** @type {string} */ name, /** @type {string} */ without) {
    const asked = this.query.get(name) ?? "";
    const id = this.axes.has(asked) ? asked : without;
    this.selects[name].value = id;
    return this.axes.get(id) ?? null;
  }

  #draw() {
    const { runs, axes: all, brush } = this;
    const shown = this.#shownIds().map((id) => /** @type {Axis} */ (all.get(id)));
    const best = find("[data-parallel]").dataset.best ?? "";
    this.parallel.show({ axes: shown, runs, all, brush, best });
    const places = shown.map((axis) =>
      rangeFields(axis, brush.ranges.get(axis.column.id), (range) => this.#brushed([[axis.column.id, range]])),
    );
    const fields = find("[data-ranges]");
    const focused = fields.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
    fields.replaceChildren(...places);
    if (focused) fields.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
    const knob = this.columns.find(({ isKnob }) => isKnob)?.id ?? "best";
    const [x, y] = [this.#picked("x", knob), this.#picked("y", all.has("best") ? "best" : knob)];
    if (x && y) this.scatter.show({ x, y, tint: this.#picked("color", ""), runs, all, brush });
    this.#mark();
  }

  /** Say how many runs are in, and show in the table which. */
  #mark() {
    const isBrushed = this.brush.ranges.size > 0;
    const inside = this.runs.filter((run) => this.brush.holds(run, this.axes));
    const ids = new Set(inside.map(({ id }) => id));
    for (const row of document.querySelectorAll("tr[data-run]"))
      row.classList.toggle("is-out", isBrushed && !ids.has(row.dataset.run ?? ""));
    const said = find("[data-brushed]");
    said.hidden = !isBrushed;
    const text = ngettext("%(n)s of %(all)s run is in the ranges", "%(n)s of %(all)s runs are in the ranges", ids.size);
    find("[data-brushed-text]", said).textContent = fill(text, { n: ids.size, all: this.runs.length });
    const link = find("a[data-brushed-compare]", said);
    link.hidden = ids.size < 2 || ids.size > COMPARED;
    link.href = `${this.compareUrl}?runs=${[...ids].join(",")}`;
  }
}
