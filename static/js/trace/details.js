/** One event in detail: when, where, its arguments, and what it is linked with. */

import { get } from "../api.js";
import { around, field, find } from "../dom.js";
import { bytes, el, fill, gettext, icon, messageOf, write } from "../format.js";
import { toast } from "../toast.js";
import { runLinks } from "./moment.js";
import { CATEGORIES, categoryWord } from "./palette.js";
import { axisText, span } from "./times.js";

export class Details {
  constructor({ page, view, clock }) {
    this.page = page;
    this.view = view;
    this.clock = clock;
    view.addEventListener("chosen", () => this.#show());
    find('[data-action="details-close"]').addEventListener("click", () => view.choose(null));
    find("[data-details-body]").addEventListener("click", (event) => {
      this.#jump(around(event, "[data-event]"));
      copy(around(event, "[data-copy]"));
    });
  }

  async #show() {
    const event = this.view.chosen;
    const card = find("[data-details]");
    card.hidden = !event;
    find('button[data-zoom="selection"]').disabled = !event && !this.view.selection;
    if (!event) return;
    const turn = (this.turn ?? 0) + 1;
    this.turn = turn;
    this.#write(event, null);
    if (event.layer === null || event.id < 0) return;
    try {
      const answer = await get(`${this.page.api}/layers/${event.layer}/events/${event.id}`);
      if (turn === this.turn) this.#write(event, answer);
    } catch (error) {
      if (turn === this.turn) find("[data-details-body]").append(el("p", { class: "field-error" }, messageOf(error)));
    }
  }

  #write(event, answer) {
    const phase = event.about
      ? (this.view.painter.palette.phases.get(event.about.phase)?.label ?? event.about.phase)
      : null;
    const name = answer?.name ?? (event.about ? event.about.name || phase : event.name);
    const title = field("details-title");
    write(title, answer?.short || event.label || name);
    title.title = name;
    const category = answer?.category ?? CATEGORIES[event.category] ?? "other";
    /** @type {[string, string | Node][]} */
    const rows = [
      [gettext("Kind"), categoryWord(category)],
      [gettext("Begin"), axisText(event.begin - this.view.zero, 1)],
      [gettext("Duration"), span(event.end - event.begin)],
      [gettext("Lane"), `${event.group}, ${event.lane}`],
    ];
    const step =
      event.about?.step ?? this.view.steps.find(({ begin, end }) => begin <= event.begin && end > event.begin)?.number;
    if (step > 0) rows.push([gettext("Step"), String(step)]);
    if (answer?.source) rows.push([gettext("Source"), jumpTo({ ...answer.source, layer: event.layer })]);
    if (answer?.bytes) rows.push([gettext("Bytes"), bytes(answer.bytes)]);
    const info = answer?.info && typeof answer.info === "object" ? Object.entries(answer.info) : [];
    for (const [key, value] of info.slice(0, 60))
      rows.push([key, typeof value === "string" ? value : JSON.stringify(value)]);
    const table = el(
      "table",
      { class: "trace-about" },
      el(
        "tbody",
        {},
        ...rows.map(([key, value]) => el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, value))),
      ),
    );
    const full =
      answer && answer.short !== name
        ? [
            el(
              "div",
              { class: "trace-full" },
              el("code", {}, name),
              el(
                "button",
                {
                  class: "btn btn-sm btn-icon btn-quiet",
                  type: "button",
                  "data-copy": name,
                  title: COPY,
                  "aria-label": COPY,
                },
                icon("copy"),
              ),
            ),
          ]
        : [];
    const linked = [...(answer?.linked ?? []), ...(answer?.operators ?? [])].map((one) =>
      el(
        "li",
        {},
        jumpTo({ ...one, layer: event.layer }),
        el("span", { class: "faint" }, ` ${categoryWord(one.category)}, ${span(one.duration)}`),
      ),
    );
    const elsewhere = runLinks(this, event.begin, Math.max(event.end, event.begin + 1));
    find("[data-details-body]").replaceChildren(
      ...full,
      table,
      ...(elsewhere.length ? [el("div", { class: "trace-links" }, ...elsewhere)] : []),
      ...(linked.length ? [el("h3", {}, gettext("Linked with")), el("ul", { class: "trace-linked" }, ...linked)] : []),
    );
  }

  #jump(button) {
    if (!button) return;
    const one = JSON.parse(button.dataset.event);
    goTo(this.view, this.clock, one);
  }
}

const COPY = gettext("Copy the full name");

/** Return a button that leads to another event. */
const jumpTo = (one) => el("button", { class: "link", type: "button", "data-event": JSON.stringify(one) }, one.name);

async function copy(button) {
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    toast(gettext("Copied."));
  } catch {
    toast(gettext("The browser did not let it be copied."), { isError: true });
  }
}

/** Choose an event of a layer as the API names it, and bring it into sight. */
export function goTo(view, clock, { layer, lane, depth, begin, duration, id, name, category }) {
  const laneKey = `${layer}.${lane}`;
  const group = view.layout.groups.find(({ lanes }) => lanes.some(({ key }) => key === laneKey));
  const start = clock.offset(begin);
  const event = {
    laneKey,
    depth,
    begin: start,
    end: start + duration,
    layer,
    id,
    name,
    category: CATEGORIES.indexOf(category),
    about: null,
    lane: group?.lanes.find(({ key }) => key === laneKey)?.title ?? fill(gettext("lane %(n)s"), { n: lane }),
    group: group?.title ?? "",
  };
  view.show(event);
  view.choose(event);
}
