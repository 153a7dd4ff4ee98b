/** Search: names that hold the words, by time; then from hit to hit. */

import { get } from "../api.js";
import { around, field, find } from "../dom.js";
import { el, fill, gettext, grouped, messageOf, ngettext, write } from "../format.js";
import { onKeys } from "../keys.js";
import { goTo } from "./details.js";
import { categoryWord } from "./palette.js";
import { span } from "./times.js";

const SOON_MS = 200;

export class Search {
  constructor({ page, view, clock, query }) {
    this.page = page;
    this.view = view;
    this.clock = clock;
    this.query = query;
    this.input = find("input[data-search]");
    this.list = find("[data-found]");
    this.input.value = query.get("q") ?? "";
    this.input.addEventListener("input", () => this.#typed());
    this.input.addEventListener("focus", () => {
      if (this.input.value) this.#typed();
    });
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.list.addEventListener("click", (event) => this.#pick(around(event, "[data-index]")));
    document.addEventListener("pointerdown", (event) => {
      if (!around(event, ".trace-search")) this.list.hidden = true;
    });
    find("[data-names]").addEventListener("click", (event) => this.#name(around(event, "[data-name]")));
    for (const button of document.querySelectorAll("button[data-hit]"))
      button.addEventListener("click", () => this.jump(button.dataset.hit === "back"));
    onKeys({
      n: () => (this.input.value ? this.jump(false) : false),
      N: () => (this.input.value ? this.jump(true) : false),
    });
    this.#buttons();
  }

  #buttons() {
    for (const button of document.querySelectorAll("button[data-hit]")) button.disabled = !this.input.value.trim();
  }

  #typed() {
    this.#buttons();
    this.query.set("q", this.input.value);
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.#load(), SOON_MS);
  }

  #name(button) {
    if (!button) return;
    this.input.value = button.dataset.name;
    this.#buttons();
    this.query.set("q", button.dataset.name);
    this.jump(false, true);
  }

  async #load() {
    const words = this.input.value.trim();
    const turn = (this.turn ?? 0) + 1;
    this.turn = turn;
    this.list.hidden = !words;
    write(field("hits"), "");
    if (!words) return;
    try {
      const { found } = await get(`${this.page.api}/search?q=${encodeURIComponent(words)}`);
      if (turn !== this.turn) return;
      this.found = found;
      const events = found.reduce((sum, one) => sum + one.events, 0);
      const told = fill(ngettext("%(n)s event", "%(n)s events", events), { n: grouped(events) });
      write(field("hits"), told);
      this.list.replaceChildren(
        el("p", { class: "menu-head num", "aria-hidden": "true" }, told),
        ...(found.length
          ? found.map((one, index) =>
              el(
                "button",
                { class: "menu-item", type: "button", "data-index": String(index) },
                el("i", { class: "swatch", "data-category": one.category, title: categoryWord(one.category) }),
                el("span", { class: "mono cut", title: one.name }, one.name),
                el("span", { class: "spacer" }),
                el("span", { class: "faint num nowrap" }, `${grouped(one.events)} × · ${span(one.total)}`),
              ),
            )
          : [el("p", { class: "menu-head" }, gettext("No name matches. Try another part of it."))]),
      );
    } catch (error) {
      if (turn === this.turn) write(field("hits"), messageOf(error));
    }
  }

  #key(event) {
    if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      clearTimeout(this.waiting);
      this.list.hidden = true;
      this.jump(event.shiftKey);
    } else if (event.key === "Escape") {
      this.list.hidden = true;
      this.view.canvas.focus();
    } else if (event.key === "ArrowDown" && !this.list.hidden) {
      event.preventDefault();
      this.list.querySelector("button")?.focus();
    }
  }

  /** Go to the longest event of a name that was found. */
  #pick(button) {
    if (!button) return;
    const one = this.found[Number(button.dataset.index)];
    this.list.hidden = true;
    this.input.value = one.name;
    this.query.set("q", one.name);
    this.#buttons();
    goTo(this.view, this.clock, { ...one, id: one.event });
  }

  /** Go to the next (previous) event after the chosen one, or after the beginning of what is on the screen. */
  async jump(isBack, isFresh = false) {
    const words = this.input.value.trim();
    if (!words) return;
    const { chosen, view } = this.view;
    const at = chosen && !isFresh ? chosen.begin : isBack ? view.to : view.from - 1;
    const ask = (from) =>
      get(`${this.page.api}/hits?q=${encodeURIComponent(words)}&at=${this.clock.absolute(from)}&back=${isBack}`);
    try {
      let hit = await ask(at);
      if (hit.event === null) hit = await ask(isBack ? this.view.extent.to + 1 : this.view.extent.from - 1); // round the end
      if (hit.event === null) {
        write(field("hits"), gettext("No event matches."));
        this.list.replaceChildren(el("p", { class: "menu-head" }, gettext("No event matches.")));
        this.list.hidden = false;
        return;
      }
      goTo(this.view, this.clock, { ...hit, id: hit.event, category: "other" });
    } catch (error) {
      write(field("hits"), messageOf(error));
    }
  }
}
