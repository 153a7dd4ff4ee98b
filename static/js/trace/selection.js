/** What happened in the selection, or else on the screen: wall time, how busy each device was, which names took the time. */

import { get } from "../api.js";
import { field, find } from "../dom.js";
import { el, fill, gettext, gpuName, grouped, laneName, messageOf, write } from "../format.js";
import { facts, windowOf } from "./facts.js";
import { runLinks } from "./moment.js";
import { categoryWord } from "./palette.js";
import { momentText, span } from "./times.js";

const SOON_MS = 250;

export class Selection {
  constructor({ page, view, clock, layers }) {
    this.page = page;
    this.view = view;
    this.clock = clock;
    this.layers = layers;
    view.addEventListener("window", () => {
      if (!view.selection) this.soon();
    });
    view.addEventListener("selection", () => this.soon());
    find('[data-action="selection-close"]').addEventListener("click", () => view.select(null));
  }

  /** Read the summary of what is selected once people rest. */
  soon() {
    const { view } = this;
    const has = Boolean(view.selection);
    find('[data-action="selection-close"]').hidden = !has;
    find('button[data-zoom="selection"]').disabled = !has && !view.chosen;
    write(field("selection-title"), has ? gettext("Selection") : gettext("On the screen"));
    const { from, to } = windowOf(this.view);
    const width = to - from;
    write(
      field("selection-note"),
      fill(gettext("%(from)s – %(to)s"), {
        from: momentText(from - view.zero, width),
        to: momentText(to - view.zero, width),
      }),
    );
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.#load(), SOON_MS);
    this.#links(from, to);
  }

  async #load() {
    const { from, to } = windowOf(this.view);
    const turn = (this.turn ?? 0) + 1;
    this.turn = turn;
    if (!this.layers.numReady || to <= from) {
      this.#show({ from, to }, { count: 0, names: [], devices: [] });
      return;
    }
    try {
      const answer = await get(
        `${this.page.api}/summary?from=${this.clock.absolute(from)}&to=${this.clock.absolute(to)}`,
      );
      if (turn === this.turn) this.#show({ from, to }, answer);
    } catch (error) {
      if (turn === this.turn) write(field("names-note"), messageOf(error));
    }
  }

  #show({ from, to }, { count, names, devices }) {
    const rows = facts({ from, to }, { steps: this.view.steps, devices, nameOf: (device) => this.#deviceName(device) });
    if (this.layers.numReady) rows.push([gettext("Events"), grouped(count), ""]);
    find("[data-facts]").replaceChildren(
      ...rows.map(([name, value, more]) =>
        el(
          "tr",
          {},
          el("td", { class: name.startsWith(" ") ? "is-part" : false }, name.trim()),
          el("td", { class: "num" }, value),
          el("td", { class: "num faint" }, more),
        ),
      ),
    );
    write(field("names-note"), count ? fill(gettext("top %(n)s by total time"), { n: names.length }) : "");
    const body = find("[data-names]");
    if (!names.length) {
      body.replaceChildren(
        el(
          "tr",
          {},
          el(
            "td",
            { class: "faint", colspan: "3" },
            this.layers.numReady ? gettext("Nothing happens here.") : gettext("No file is imported yet."),
          ),
        ),
      );
      return;
    }
    body.replaceChildren(
      ...names.map(({ name, category, count: n, total }) =>
        el(
          "tr",
          {},
          el(
            "td",
            { title: `${name} (${categoryWord(category)})` },
            el(
              "button",
              { class: "trace-name", type: "button", "data-name": name },
              el("i", { class: "swatch", "data-category": category }),
              el("span", { class: "mono cut" }, name),
            ),
          ),
          el("td", { class: "num" }, grouped(n)),
          el("td", { class: "num" }, span(total)),
        ),
      ),
    );
  }

  #deviceName({ layer, device }) {
    const owner = this.layers.of(layer);
    const who = owner?.role ? laneName({ role: owner.role, rank: owner.rank ?? 0 }) : "";
    const gpu = gpuName(device);
    return who ? `${who}, ${gpu}` : gpu;
  }

  /** Lead to the summary of this window, and to the same moment on the run's pages. */
  #links(from, to) {
    const { id, list } = this.page;
    const summary = el(
      "a",
      { href: `${list}${id}/summary?from=${this.clock.absolute(from)}&to=${this.clock.absolute(to)}` },
      gettext("Where its time goes"),
    );
    find("[data-links]").replaceChildren(summary, ...runLinks(this, from, to));
  }
}
