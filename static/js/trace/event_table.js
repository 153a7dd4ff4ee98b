/** The events of a window as a table that can be sorted; a click on one leads to it. */

import { around } from "../dom.js";
import { bytes, el, gettext } from "../format.js";
import { categoryWord } from "./palette.js";
import { axisText, span } from "./times.js";

export class EventTable {
  constructor({ body, onSort, onPick }) {
    this.body = body;
    this.sort = "length";
    this.isDescending = true;
    this.rows = [];
    body.addEventListener("click", (event) => {
      const head = around(event, "button[data-sort]");
      const row = around(event, "button[data-row]");
      if (head) {
        this.isDescending = head.dataset.sort === this.sort ? !this.isDescending : head.dataset.sort !== "name";
        this.sort = head.dataset.sort ?? this.sort;
        onSort();
      } else if (row) onPick(this.rows[Number(row.dataset.row)]);
    });
  }

  /** The sort as the API takes it. */
  get order() {
    return `sort=${this.sort}&order=${this.isDescending ? "desc" : "asc"}`;
  }

  show(rows, zero, clock) {
    this.rows = rows;
    /** @type {[string, string][]} */
    const heads = [
      ["name", gettext("Name")],
      ["category", gettext("Kind")],
      ["lane", gettext("Lane")],
      ["begin", gettext("Begin")],
      ["length", gettext("Length")],
      ["bytes", gettext("Bytes")],
    ];
    const head = (/** @type {[string, string]} */ [key, text], /** @type {number} */ i) => {
      const isSorted = key === this.sort;
      const way = isSorted ? (this.isDescending ? "descending" : "ascending") : "none";
      return el(
        "th",
        { scope: "col", class: i > 2 ? "num" : false, "aria-sort": way },
        el("button", { type: "button", "data-sort": key }, text, isSorted ? (this.isDescending ? " ↓" : " ↑") : ""),
      );
    };
    const line = (row, i) =>
      el(
        "tr",
        {},
        el(
          "td",
          { title: row.name },
          el(
            "button",
            { class: "trace-name", type: "button", "data-row": String(i) },
            el("i", { class: "swatch", "data-category": row.category }),
            el("span", { class: "mono cut" }, row.short),
          ),
        ),
        el("td", {}, categoryWord(row.category)),
        el("td", { class: "nowrap" }, row.lane_name),
        el("td", { class: "num" }, axisText(clock.offset(row.begin) - zero, 1000)),
        el("td", { class: "num" }, span(row.duration)),
        el("td", { class: "num" }, row.bytes ? bytes(row.bytes) : ""),
      );
    this.body.replaceChildren(
      rows.length
        ? el(
            "table",
            { class: "table is-compact trace-tree trace-events" },
            el("thead", {}, el("tr", {}, ...heads.map(head))),
            el("tbody", {}, ...rows.map(line)),
          )
        : el("p", { class: "empty" }, gettext("No event of this window fits. Loosen the conditions.")),
    );
  }
}
