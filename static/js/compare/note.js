/** A note of a person on a step of one of the compared runs: by a click on the x axis of a chart, or by the key `a`. */

import { send } from "../api.js";
import { controls, field, find } from "../dom.js";
import { el, fill, gettext, messageOf, write } from "../format.js";
import { onKeys } from "../keys.js";
import { toast } from "../toast.js";
import { pointsAt } from "./point.js";

export class NoteForm {
  /** `onWritten` is called once a note is kept. */
  constructor({ charts, view, onWritten }) {
    this.charts = charts;
    this.dialog = find('dialog[data-dialog="note"]');
    this.form = find("form", this.dialog);
    this.steps = new Map(); // run id -> its step at the place that was clicked
    this.onWritten = onWritten;
    if (!this.#runs().length) return; // viewers of all projects write none
    view.onAxis = (/** @type {{ x: number, axis: string }} */ point) => this.#pick(point);
    onKeys({ a: () => this.#open(new Map(this.#runs().map((run) => [run.id, run.step]))) });
    controls(this.form).note_run.addEventListener("change", () => this.#tellStep());
    this.form.addEventListener("submit", (event) => this.#submit(event));
  }

  /** The runs that this person may write on, the baseline first. */
  #runs() {
    const runs = this.charts.page.runs.filter((run) => run.takesNotes);
    return runs.toSorted((a, b) => b.isBase - a.isBase);
  }

  async #pick({ x, axis }) {
    const runs = this.#runs();
    if (axis === "step") {
      this.#open(new Map(runs.map((run) => [run.id, Math.max(0, Math.round(x))])));
      return;
    }
    try {
      const points = await pointsAt({ runs, metric: this.charts.page.metrics[0] ?? "-", x: Math.max(0, x), axis });
      this.#open(new Map(points.map(({ run, step }) => [run.id, step])));
    } catch (error) {
      toast(messageOf(error), { isError: true });
    }
  }

  #open(steps) {
    this.steps = steps;
    const { note_run: run, note_text: text } = controls(this.form);
    run.replaceChildren(...this.#runs().map(({ id, name }) => el("option", { value: id }, name)));
    text.value = "";
    write(field("note-problem"), "");
    this.#tellStep();
    if (!this.dialog.open) this.dialog.showModal();
    text.focus();
  }

  #tellStep() {
    const { note_run: run, note_step: step } = controls(this.form);
    step.value = String(this.steps.get(run.value) ?? "");
  }

  async #submit(event) {
    event.preventDefault();
    const { note_run: run, note_step: step, note_text: text } = controls(this.form);
    const body = { step: Number(step.value), text: text.value };
    try {
      await send("POST", `/api/runs/${run.value}/notes`, body);
    } catch (error) {
      write(field("note-problem"), messageOf(error));
      return;
    }
    this.dialog.close();
    toast(fill(gettext("The note on step %(step)s is kept"), body));
    this.onWritten();
  }
}
