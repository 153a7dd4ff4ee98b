/** The rows of the list of samples: one for each, and one above each group where they are shown by group. */

import * as numbers from "../charts/numbers.js";
import { el, fill, gettext, grouped, icon } from "../format.js";
import { mark, oneLine, reward as shown } from "./sample.js";

export const COLUMNS = 7;

/** Whether the rewards of a sample's group are known and all equal. */
const isFlat = (/** @type {any} */ row) =>
  row.group_size > 1 && row.group_low !== null && row.group_low === row.group_high;

/** Return how many of a group without variance have the full reward, marked. */
const flatTag = (/** @type {any} */ row) =>
  el("span", { class: "tag", title: gettext("zero variance") }, `= ${row.group_full}/${row.group_size}`);

/** Return the row above a group. */
export function groupRow(/** @type {any} */ row) {
  const text = fill(gettext("step %(step)s, group %(group)s: mean reward %(mean)s of %(count)s"), {
    step: row.step,
    group: row.group,
    mean: numbers.number(row.group_mean),
    count: row.group_size,
  });
  return el(
    "tr",
    { class: "run-group-row" },
    el(
      "th",
      { colspan: COLUMNS, scope: "rowgroup", class: "cut", title: row.prompt },
      el("b", {}, text),
      " ",
      isFlat(row) ? el("span", { class: "tag" }, gettext("zero variance")) : null,
      " ",
      el("span", { class: "faint" }, oneLine(row.prompt)),
    ),
  );
}

/**
 * Return the row of a sample, to be opened.
 *
 * @param {any} row
 * @param {{ attempts: any[], isDead: (attempt: number, step: number) => boolean }} branches
 */
export function sampleRow(row, branches) {
  return el(
    "tr",
    {
      tabindex: "0",
      "aria-expanded": "false",
      "data-sample": String(row.id),
      class: branches.isDead(row.attempt, row.step) ? "is-dead" : false,
    },
    el(
      "td",
      { class: "num" },
      grouped(row.step),
      row.is_eval ? el("span", { class: "faint", title: gettext("held-out") }, " ○") : null,
      attemptTag(row, branches),
    ),
    el(
      "td",
      { class: "num" },
      mark(row.reward),
      shown(row.reward),
      row.rewards?.failed ? el("span", { class: "tag" }, gettext("scoring failed")) : null,
    ),
    el("td", { class: "cut" }, oneLine(row.prompt)),
    el("td", { class: "cut" }, reviewMarks(row), oneLine(row.completion)),
    el("td", { class: "num cut", title: row.expected }, row.expected || "—"),
    el("td", { class: "num" }, grouped(row.tokens)),
    el("td", { class: "num" }, isFlat(row) ? flatTag(row) : `${row.group_full}/${row.group_size}`),
  );
}

/** Say what people said of it, before the response. */
export function reviewMarks(/** @type {any} */ { num_up, num_down, num_notes }) {
  const marks = /** @type {[number, string, string][]} */ ([
    [num_up, "thumb-up", gettext("thumbs up")],
    [num_down, "thumb-down", gettext("thumbs down")],
    [num_notes, "note", gettext("notes")],
  ]).filter(([count]) => count > 0);
  return el(
    "span",
    { class: "run-sample-marks", "data-sample-marks": true },
    ...marks.map(([count, name, title]) =>
      el("span", { class: "tag", title: `${count} ${title}` }, icon(name), String(count)),
    ),
  );
}

/** Say whose sample it is, where there were several attempts. */
function attemptTag({ attempt, step }, branches) {
  if (branches.attempts.length < 2) return null;
  const title = branches.isDead(attempt, step)
    ? fill(gettext("dead branch, attempt %(attempt)s"), { attempt })
    : fill(gettext("attempt %(attempt)s"), { attempt });
  return el("span", { class: "tag run-attempt-tag", title }, `a${attempt}`);
}
