/** Knobs that change while the run trains: the button beside each, its popover, and what was changed so far. */

import { get, send } from "../api.js";
import { changeText, valueText } from "../charts/knob-changes.js";
import { around, controls, field, find } from "../dom.js";
import { el, fill, gettext, messageOf, write } from "../format.js";
import { toast } from "../toast.js";

const SOON_MS = 300;

export class LiveKnobs extends EventTarget {
  changes = [];
  /** @type {Map<string, any>} what can change now, by id */
  live = new Map();
  shownId = "";
  /** @type {number | string | boolean | null} what the shown knob was before its last change */
  back = null;
  waiting = 0;

  constructor({ page, store }) {
    super();
    this.page = page;
    this.panel = document.querySelector("#live-knob"); // viewers have none
    store.on("notes", () => this.soon());
    store.on("branches", () => this.soon());
    document.addEventListener("click", (event) => {
      const button = around(event, "[data-change-knob]");
      if (button) this.#open(button);
    });
    document.querySelector("#live-knob form")?.addEventListener("submit", (event) => this.#submit(event));
    document.querySelector("[data-live-back]")?.addEventListener("click", () => this.#set(this.shownId, this.back));
  }

  /** Take a new header: what state allows changes. */
  update({ state }) {
    if (this.state !== state) this.load();
    this.state = state;
  }

  soon() {
    this.waiting ||= setTimeout(() => {
      this.waiting = 0;
      this.load();
    }, SOON_MS);
  }

  async load() {
    if (!this.page.isNative) return;
    try {
      this.#take(await get(`${this.page.api}/knobs`));
    } catch {
      // What is there stays; the offline notice says why.
    }
  }

  #take({ knobs, changes, refused }) {
    this.live = new Map(knobs.map((knob) => [knob.id, knob]));
    this.changes = changes;
    for (const button of document.querySelectorAll("[data-change-knob]"))
      button.hidden = !this.live.has(button.dataset.changeKnob ?? "");
    for (const knob of knobs) this.#row(knob);
    if (refused && refused !== this.refused && this.refused !== undefined) toast(refused, { isError: true });
    this.refused = refused;
    this.dispatchEvent(new Event("change"));
  }

  /** Say in the table what the knob is now, what was asked for, and since when. */
  #row(knob) {
    const row = document.querySelector(`[data-knob-row="${knob.id}"]`);
    if (!row) return;
    const asked =
      knob.pending === null ? "" : fill(gettext("%(value)s from the next step on"), { value: valueText(knob.pending) });
    write(row.querySelector("[data-asked]"), asked);
    const last = this.#of(knob.id).at(-1);
    if (!last) return;
    write(row.querySelector("[data-value]"), valueText(knob.value));
    find(".origin", row).dataset.origin = "you";
    write(row.querySelector("[data-origin-text]"), fill(gettext("changed at step %(step)s"), last));
  }

  #of(id) {
    return this.changes.filter((change) => change.knob === id);
  }

  #open(button) {
    const knob = this.live.get(button.dataset.changeKnob);
    const { panel } = this;
    if (!knob || !panel) return;
    const isSame = this.shownId === knob.id && panel.matches(":popover-open");
    this.#close();
    if (isSame) return;
    this.shownId = knob.id;
    write(field("live-title"), knob.label);
    write(field("live-allowed"), fill(gettext("Allowed: %(what)s"), { what: knob.allowed }));
    write(field("live-problem"), "");
    const { value } = controls(find("#live-knob form"));
    value.value = valueText(knob.pending ?? knob.value);
    this.#history(knob);
    panel.showPopover();
    const at = button.getBoundingClientRect();
    const { width, height } = panel.getBoundingClientRect();
    panel.style.left = `${Math.max(8, Math.min(at.left - 12, innerWidth - width - 8))}px`;
    panel.style.top = `${at.bottom + 6 + height < innerHeight ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
    value.select();
  }

  #close() {
    if (this.panel?.matches(":popover-open")) this.panel.hidePopover();
  }

  #history(knob) {
    const own = this.#of(knob.id);
    find("[data-live-history]").replaceChildren(...own.map((change) => el("li", {}, changeText(change))));
    const back = find("[data-live-back]");
    back.hidden = own.length === 0;
    if (!own.length) return;
    const { old } = own[own.length - 1];
    this.back = old;
    write(back, fill(gettext("Set back to %(value)s"), { value: valueText(old) }));
  }

  #submit(event) {
    event.preventDefault();
    this.#set(this.shownId, controls(event.currentTarget).value.value);
  }

  async #set(id, value) {
    const before = this.live.get(id)?.value;
    try {
      const { is_changed: isChanged, settings } = await send("POST", `${this.page.api}/knobs`, {
        knobs: { [id]: value },
      });
      this.#take(settings);
      this.#close();
      if (!isChanged) toast(gettext("Nothing changes: it is so already, or was asked for"));
      else toast(gettext("Taken at the next step"), { undo: () => this.#set(id, before) });
    } catch (error) {
      if (this.panel?.matches(":popover-open")) write(field("live-problem"), messageOf(error));
      else toast(messageOf(error), { isError: true });
    }
  }
}
