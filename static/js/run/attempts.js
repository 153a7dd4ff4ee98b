/** The run's attempts: a word in the head, and behind it what became of each. */

import * as numbers from "../charts/numbers.js";
import { find } from "../dom.js";
import { el, fill, gettext, grouped, stateBadge, write } from "../format.js";
import { causePlace } from "./header.js";

export class Attempts {
  constructor() {
    this.button = find('button[data-action="attempts"]');
    this.dialog = find('dialog[data-dialog="attempts"]');
    this.button.addEventListener("click", () => {
      this.#draw();
      this.dialog.showModal();
    });
  }

  /** Take a new header. */
  show(header) {
    this.header = header;
    const { attempt, attempts } = header;
    write(this.button, fill(gettext("attempt %(number)s of %(count)s"), { number: attempt, count: attempts.length }));
    if (this.dialog.open) this.#draw();
  }

  #draw() {
    const rows = [...this.header.attempts].reverse().map((one) => this.#row(one));
    find("[data-attempts]").replaceChildren(...rows);
  }

  #row(one) {
    const { cause } = one;
    const why = cause.text
      ? el("span", { class: "faint small run-attempt-cause" }, `${causePlace(cause)} ${cause.text}`)
      : null;
    const began =
      one.resume_attempt === null
        ? gettext("from the start")
        : fill(gettext("from checkpoint %(step)s of attempt %(attempt)s"), {
            step: grouped(one.resume_step),
            attempt: one.resume_attempt,
          });
    const by = one.is_automatic ? gettext("automatically, by its policy") : one.by;
    const at = new Date(one.started_at ?? one.created_at);
    const from = one.resume_attempt === null ? 0 : one.resume_step;
    const steps = one.step > from ? `${grouped(from + 1)}–${grouped(one.step)}` : "—";
    const took = one.started_at
      ? ((one.ended_at ? Date.parse(one.ended_at) : Date.now()) - Date.parse(one.started_at)) / 1000
      : null;
    return el(
      "tr",
      { class: one.visible_through === -1 ? "is-dead" : "" },
      el("td", { class: "num" }, grouped(one.number)),
      el("td", { class: "run-attempt-state" }, stateBadge(one.state, false), why),
      el(
        "td",
        { class: "nowrap" },
        began,
        el(
          "span",
          { class: "faint small run-attempt-cause", title: numbers.moment(at) },
          [numbers.clock(at), by, one.devices].filter(Boolean).join(" · "),
        ),
      ),
      el("td", { class: "num" }, steps),
      el("td", { class: "num" }, inHistory(one, from)),
      el("td", { class: "num" }, took === null ? "—" : numbers.duration(Math.max(took, 0))),
    );
  }
}

/** Which steps of an attempt the charts show: "41–57", "all", "none"; "—" where it did none. */
function inHistory({ visible_through: through, step }, from) {
  if (step <= from) return "—";
  if (through === null) return gettext("all");
  if (through <= from) return gettext("none");
  return through >= step ? gettext("all") : `${grouped(from + 1)}–${grouped(through)}`;
}
