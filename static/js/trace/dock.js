/** What lies below the timeline: the window's flame graph, its names top-down and bottom-up, and its events. */

import { get } from "../api.js";
import { around, field, find } from "../dom.js";
import { el, fill, gettext, grouped, laneName, messageOf, write } from "../format.js";
import { goTo } from "./details.js";
import { EventTable } from "./event_table.js";
import { windowOf } from "./facts.js";
import { bottomUp, FlameGraph, topDown } from "./flame.js";
import { span } from "./times.js";

const SOON_MS = 300;
const TABS = ["flame", "down", "up", "events"];

export class Dock {
  constructor({ page, view, clock, layers, query }) {
    this.page = page;
    this.view = view;
    this.clock = clock;
    this.layers = layers;
    this.query = query;
    this.turn = 0;
    this.body = find("[data-dock-body]");
    this.by = find("select[data-dock-by]");
    this.layer = find("select[data-dock-layer]");
    this.where = find("form[data-where]");
    this.conditions = find('input[name="where"]', this.where);
    this.graph = new FlameGraph(this.body);
    this.table = new EventTable({
      body: this.body,
      onSort: () => this.#load(),
      onPick: (row) => goTo(view, clock, row),
    });
    for (const button of document.querySelectorAll("[data-dock-tab]"))
      button.addEventListener("click", () =>
        this.open(this.tab === button.dataset.dockTab ? "" : button.dataset.dockTab),
      );
    find('[data-action="dock-close"]').addEventListener("click", () => this.open(""));
    this.by.addEventListener("change", () => {
      query.set("by", this.by.value);
      this.#load();
    });
    this.layer.addEventListener("change", () => this.#load());
    this.where.addEventListener("submit", (event) => {
      event.preventDefault();
      query.set("where", this.#conditions);
      this.#load();
    });
    this.body.addEventListener("click", (event) => this.#look(around(event, "[data-look]")));
    view.addEventListener("window", () => view.selection || this.soon());
    view.addEventListener("selection", () => this.soon());
    layers.addEventListener("layer", () => this.#files());
    this.by.value = query.get("by") ?? "operators";
    this.conditions.value = query.get("where") ?? "";
    this.open(TABS.includes(query.get("dock")) ? query.get("dock") : "");
  }

  get #conditions() {
    return this.conditions.value.trim();
  }

  /** Open a tab; "" closes the dock. */
  open(tab) {
    this.tab = tab;
    this.query.set("dock", tab);
    for (const button of document.querySelectorAll("[data-dock-tab]"))
      button.setAttribute("aria-pressed", String(button.dataset.dockTab === tab));
    find("[data-trace]").toggleAttribute("data-open", Boolean(tab));
    this.body.hidden = !tab;
    find('[data-action="dock-close"]').hidden = !tab;
    this.where.hidden = tab !== "events";
    this.by.hidden = !tab || tab === "events";
    this.#files();
    clearTimeout(this.waiting); // of the files: it is read at once
    this.body.replaceChildren();
    write(field("dock-note"), tab ? gettext("reading the window…") : "");
    if (tab) this.#load();
  }

  /** Name the files to choose from, where there are several. */
  #files() {
    const ready = [...this.layers.details.values()];
    const before = this.layer.value;
    this.layer.replaceChildren(
      ...ready.map(({ id, role, rank, file_name: name }) =>
        el("option", { value: id, selected: String(id) === before }, role ? laneName({ role, rank: rank ?? 0 }) : name),
      ),
    );
    this.layer.hidden = !this.tab || this.tab === "events" || ready.length < 2;
    if (this.tab) this.soon();
  }

  /** Read anew once people rest. */
  soon() {
    if (!this.tab) return;
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.#address !== this.asked && this.#load(), SOON_MS);
  }

  get #window() {
    const { from, to } = windowOf(this.view);
    return `from=${this.clock.absolute(from)}&to=${this.clock.absolute(Math.max(to, from + 1))}`;
  }

  async #load() {
    if (!this.tab || !this.layers.details.size) return;
    this.turn += 1;
    this.asked = this.#address;
    const { turn, tab } = this;
    try {
      const answer = await get(this.asked);
      if (turn !== this.turn) return;
      this.#show(tab, answer);
    } catch (error) {
      if (turn !== this.turn) return;
      this.asked = "";
      this.body.replaceChildren(el("p", { class: "empty" }, messageOf(error)));
      write(field("dock-note"), "");
    }
  }

  get #address() {
    const { api } = this.page;
    if (this.tab !== "events")
      return `${api}/layers/${this.layer.value || [...this.layers.details.keys()][0]}/flame?${this.#window}&by=${this.by.value}`;
    const asked = `${this.#window}&where=${encodeURIComponent(this.#conditions)}&${this.table.order}`;
    find("a[data-csv]").href = `${api}/events.csv?${asked}`;
    return `${api}/events?${asked}`;
  }

  #show(tab, answer) {
    if (tab === "events") {
      const text = gettext("%(shown)s of %(n)s events");
      write(field("dock-note"), fill(text, { shown: grouped(answer.rows.length), n: grouped(answer.count) }));
      this.table.show(answer.rows, this.view.zero, this.clock);
      return;
    }
    const text = gettext("%(n)s events, %(time)s added up over threads");
    write(field("dock-note"), fill(text, { n: grouped(answer.events), time: span(answer.total) }));
    if (!answer.nodes.length)
      this.body.replaceChildren(
        el("p", { class: "empty" }, gettext("Nothing of this kind was recorded here. Choose another kind or window.")),
      );
    else if (tab === "flame") this.graph.show(answer);
    else this.body.replaceChildren(tab === "down" ? topDown(answer) : bottomUp(answer));
  }

  /** Look for a name in the timeline. */
  #look(button) {
    if (!button) return;
    const input = find("input[data-search]");
    input.value = button.dataset.look;
    input.dispatchEvent(new Event("input"));
    input.focus();
  }
}
