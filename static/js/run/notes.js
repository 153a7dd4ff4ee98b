/** Notes of people on steps: written by a click on a chart's axis or with the key `a`, listed, changed and deleted. */

import { get, send } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { controls, field, find } from "../dom.js";
import { el, fill, gettext, messageOf, write } from "../format.js";
import { onKeys } from "../keys.js";
import { toast } from "../toast.js";

/** @typedef {{ id: number, step: number, text: string, by: string, is_own: boolean, at: string }} OwnNote */

export class Notes extends EventTarget {
  constructor({ page, feed, view }) {
    super();
    this.page = page;
    this.feed = feed;
    this.view = view;
    /** @type {OwnNote[]} in the order of steps */
    this.list = [];
    this.turn = 0;
    /** @type {OwnNote | null} that the form changes; null: it writes a new one */
    this.changed = null;
    this.dialog = find('dialog[data-dialog="notes"]');
    this.form = this.dialog.querySelector("form"); // viewers have none
    this.form?.addEventListener("submit", (event) => this.#submit(event));
    this.form?.querySelector("[data-note-new]")?.addEventListener("click", () => this.#write(this.#step()));
    for (const button of document.querySelectorAll("button[data-notes]"))
      button.addEventListener("click", () => this.open());
    if (this.form) view.onAxis = (/** @type {{ x: number, axis: string }} */ point) => this.#pick(point);
    onKeys({ a: () => this.open() });
  }

  /** The run's header changed: it counts what pages cannot learn from frames. */
  update(header) {
    const isNew = this.changes !== undefined && this.changes !== header.capture_changes;
    this.changes = header.capture_changes;
    this.newest = header.step;
    if (isNew) this.load();
  }

  async load() {
    const turn = ++this.turn;
    try {
      const { notes } = await get(`${this.page.api}/notes`);
      if (turn !== this.turn) return;
      this.list = notes;
      this.#show();
      this.dispatchEvent(new Event("change"));
    } catch {
      // What is there stays; the offline notice says why.
    }
  }

  /** Show the notes, ready to write one on the step under the crosshair, else on the newest. */
  open(step = this.#step()) {
    this.#show();
    if (!this.dialog.open) this.dialog.showModal();
    this.#write(step);
    this.dialog.querySelector(`[data-step="${step}"]`)?.scrollIntoView({ block: "nearest" });
  }

  async #pick(point) {
    const step = await this.feed.stepOf(point);
    if (step !== null) this.open(Math.max(0, step));
  }

  #step() {
    for (const { uplot, plot } of this.view.charts) {
      const at = uplot?.cursor.idx ?? null;
      if (at !== null && !plot.isTime && this.view.axis === "step") return uplot.data[0][at] ?? 0;
    }
    return Math.max(0, this.newest ?? 0);
  }

  /** Put a new note, or `note`, into the form. */
  #write(step, /** @type {OwnNote | null} */ note = null) {
    this.changed = note;
    if (!this.form) return;
    const { note_step: place, note_text: text } = controls(this.form);
    place.value = String(note?.step ?? step);
    text.value = note?.text ?? "";
    write(field("note-problem"), "");
    write(find("[data-note-save]", this.form), note ? gettext("Save the change") : gettext("Write the note"));
    find("button[data-note-new]", this.form).hidden = note === null;
    text.focus();
  }

  async #submit(event) {
    event.preventDefault();
    const { note_step: step, note_text: text } = controls(event.currentTarget);
    const body = { step: Number(step.value), text: text.value };
    const { changed } = this;
    try {
      if (changed) await send("PATCH", `${this.page.api}/notes/${changed.id}`, body);
      else await send("POST", `${this.page.api}/notes`, body);
    } catch (error) {
      write(field("note-problem"), messageOf(error));
      return;
    }
    this.dialog.close();
    this.load();
    toast(fill(gettext("The note on step %(step)s is kept"), body));
  }

  async #delete(/** @type {OwnNote} */ note) {
    try {
      await send("DELETE", `${this.page.api}/notes/${note.id}`);
      if (this.changed?.id === note.id) this.#write(note.step);
      await this.load();
      const { step, text } = note;
      const undo = note.is_own ? () => this.#again({ step, text }) : undefined; // of who writes it
      toast(fill(gettext("The note on step %(step)s is deleted"), note), { undo });
    } catch (error) {
      write(field("note-problem"), messageOf(error));
    }
  }

  async #again(body) {
    await send("POST", `${this.page.api}/notes`, body);
    await this.load();
  }

  #show() {
    find("[data-note-list]").replaceChildren(...this.list.map((note) => this.#row(note)));
    field("notes-empty").hidden = this.list.length > 0;
    for (const count of document.querySelectorAll("[data-notes] .count"))
      write(count, this.list.length ? String(this.list.length) : "");
  }

  #row(/** @type {OwnNote} */ note) {
    const { step, text, by, at } = note;
    const button = (name, label, act) =>
      el("button", { type: "button", class: "btn btn-quiet btn-sm", "aria-label": label, onclick: act }, name);
    const may = this.form && (note.is_own || this.page.isAdmin);
    return el(
      "li",
      { "data-step": String(step) },
      el("b", { class: "num" }, fill(gettext("Step %(step)s"), { step })),
      el("p", {}, text),
      el("span", { class: "faint small" }, [by, numbers.moment(new Date(at))].filter(Boolean).join(" · ")),
      el(
        "span",
        { class: "row-flex" },
        this.form && note.is_own
          ? button(gettext("Change"), fill(gettext("Change the note on step %(step)s"), { step }), () =>
              this.#write(step, note),
            )
          : null,
        may
          ? button(gettext("Delete"), fill(gettext("Delete the note on step %(step)s"), { step }), () =>
              this.#delete(note),
            )
          : null,
      ),
    );
  }
}
