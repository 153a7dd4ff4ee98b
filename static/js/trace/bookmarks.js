/** What people noted of the trace: a list of windows with words on them. The address of one that was gone to shows it to others. */

import { get, send } from "../api.js";
import { around, field, find } from "../dom.js";
import { el, fill, gettext, icon, messageOf, write } from "../format.js";
import { toast } from "../toast.js";
import { windowOf } from "./facts.js";
import { momentText } from "./times.js";

export class Bookmarks {
  constructor({ page, view, clock }) {
    this.page = page;
    this.view = view;
    this.clock = clock;
    /** @type {{ number: number, text: string, begin: string, end: string, by: string }[]} */
    this.kept = [];
    this.changes = 0; // that the server has answered: what was read before one must not undo what it has shown
    this.menu = find("details[data-bookmarks]");
    this.list = find("[data-bookmark-list]");
    this.form = this.menu.querySelector("form");
    this.menu.addEventListener("toggle", () => {
      if (this.menu.open) this.read();
    });
    this.list.addEventListener("click", (event) => this.#press(around(event, "button[data-number]")));
    this.form?.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#keep();
    });
  }

  /** Read what is noted, and show it. */
  async read() {
    const { changes } = this;
    try {
      const { bookmarks } = await get(`${this.page.api}/bookmarks`);
      if (changes === this.changes) this.#show(bookmarks);
    } catch (error) {
      toast(messageOf(error), { isError: true });
    }
  }

  async #keep() {
    const { from, to } = windowOf(this.view);
    const input = find("input", this.form ?? undefined);
    const body = { text: input.value, begin: this.clock.absolute(from), end: this.clock.absolute(to) };
    try {
      const { bookmarks } = await send("POST", `${this.page.api}/bookmarks`, body);
      this.changes += 1;
      this.#show(bookmarks);
      input.value = "";
    } catch (error) {
      toast(messageOf(error), { isError: true });
    }
  }

  async #press(button) {
    if (!button) return;
    const number = Number(button.dataset.number);
    if (button.dataset.do === "go") {
      const { begin, end } = this.kept.find((one) => one.number === number) ?? {};
      if (begin) this.#go({ from: this.clock.offset(begin), to: this.clock.offset(end) });
      return;
    }
    try {
      await send("DELETE", `${this.page.api}/bookmarks/${number}`);
      this.changes += 1;
    } catch (error) {
      toast(messageOf(error), { isError: true });
    }
    await this.read();
  }

  /** Select a window, with a tenth of it to either side in sight. */
  #go({ from, to }) {
    const margin = (to - from) / 10;
    this.view.setWindow({ from: from - margin, to: to + margin });
    this.view.select({ from, to });
    this.menu.open = false;
  }

  #show(kept) {
    this.kept = kept;
    write(field("bookmarks-count"), kept.length ? String(kept.length) : "");
    this.list.replaceChildren(...kept.map(this.#row));
    if (!kept.length) this.list.append(el("p", { class: "faint small" }, gettext("Nothing is noted of this trace.")));
  }

  #row = ({ number, text, begin, end, by }) => {
    const [from, to] = [begin, end].map((moment) => this.clock.offset(moment) - this.view.zero);
    const at = { from: momentText(from, to - from), to: momentText(to, to - from) };
    return el(
      "div",
      { class: "trace-lane-row" },
      el(
        "button",
        { class: "menu-item trace-bookmark", type: "button", "data-do": "go", "data-number": number },
        el("span", {}, text),
        el("span", { class: "faint small num" }, `${fill(gettext("%(from)s – %(to)s"), at)} · ${by}`),
      ),
      this.page.canEdit &&
        el(
          "button",
          {
            class: "btn btn-sm btn-icon btn-quiet",
            type: "button",
            "data-do": "remove",
            "data-number": number,
            title: gettext("Take it away"),
            "aria-label": fill(gettext("Take the bookmark away: %(text)s"), { text }),
          },
          icon("x"),
        ),
    );
  };
}
