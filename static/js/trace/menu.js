/** The menu of lanes: which are shown and in which order, which are pinned, and which counters. */

import { around, find } from "../dom.js";
import { el, fill, gettext, grouped, icon } from "../format.js";
import { toast } from "../toast.js";

export class LaneMenu {
  constructor({ view, counters, onChange }) {
    this.view = view;
    this.counters = counters;
    this.onChange = onChange;
    this.held = find("[data-lane-list]");
    counters.addEventListener("known", () => this.draw());
    find("details[data-lane-menu]").addEventListener("toggle", () => counters.offer());
    this.held.addEventListener("change", (event) => this.#check(around(event, "input")));
    this.held.addEventListener("click", (event) => this.#press(around(event, "button[data-do]")));
  }

  #check(box) {
    if (!box) return;
    if (box.dataset.counter) {
      const isDone = this.counters.toggle(box.dataset.counter, box.checked);
      if (!isDone) {
        box.checked = false;
        toast(gettext("No more counters can be shown. Remove one first."), { isError: true });
      }
      return;
    }
    this.view.layout.show(box.value, box.checked);
    this.view.draw();
    this.onChange();
  }

  #press(button) {
    if (!button) return;
    const { layout } = this.view;
    const { do: verb, lane } = button.dataset;
    if (verb === "pin") layout.pin(lane);
    else layout.move(lane, verb === "up" ? -1 : 1);
    this.view.draw();
    this.onChange();
  }

  draw() {
    const { held, counters } = this;
    const { layout } = this.view;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement : null;
    const again = focused && held.contains(focused) ? placeOf(focused) : "";
    const all = [...counters.known.values()].filter(({ isTrack }) => !isTrack);
    const tracks = [...counters.known.values()].filter(({ isTrack }) => isTrack);
    const lanes = new Map(layout.groups.flatMap((group) => group.lanes).map((lane) => [lane.key, lane]));
    const pinned = layout.pinned.flatMap((key) => lanes.get(key) ?? []);
    held.replaceChildren(
      ...(all.length
        ? [set(fill(gettext("Counters, %(n)s"), { n: grouped(all.length) }), all.map(this.#counter))]
        : []),
      ...(tracks.length
        ? [set(fill(gettext("Curves, %(n)s"), { n: grouped(tracks.length) }), tracks.map(this.#counter))]
        : []),
      ...(pinned.length
        ? [
            set(
              gettext("Pinned"),
              pinned.map((lane) => this.#lane(lane, true)),
            ),
          ]
        : []),
      ...layout.groups
        .map((group) => ({ ...group, lanes: layout.lanesOf(group).filter(({ key }) => !layout.pinned.includes(key)) }))
        .filter((group) => group.lanes.length)
        .map((group) =>
          set(
            group.title,
            group.lanes.map((lane) => this.#lane(lane, false)),
          ),
        ),
    );
    if (again) held.querySelector(again)?.focus();
  }

  #counter = ({ key, title, series }) => {
    const box = el("input", {
      type: "checkbox",
      value: `counter ${key}`,
      "data-counter": key,
      checked: this.counters.isShown(key),
    });
    return el(
      "label",
      { class: "menu-item" },
      box,
      el("span", { class: "cut", title }, title),
      el("span", { class: "spacer" }),
      el("span", { class: "faint num" }, series.samples === null ? "" : grouped(series.samples)),
    );
  };

  #lane({ key, title, events }, isPinned) {
    const box = el("input", { type: "checkbox", value: key, checked: !this.view.layout.hidden.has(key) });
    return el(
      "div",
      { class: "trace-lane-row" },
      el(
        "label",
        { class: "menu-item" },
        box,
        el("span", { class: "cut", title }, title),
        el("span", { class: "spacer" }),
        el("span", { class: "faint num" }, events ? grouped(events) : ""),
      ),
      action("up", key, "arrow-up", fill(gettext("Move %(lane)s up"), { lane: title })),
      action("down", key, "arrow-down", fill(gettext("Move %(lane)s down"), { lane: title })),
      action(
        "pin",
        key,
        isPinned ? "x" : "pin",
        fill(isPinned ? gettext("Unpin %(lane)s") : gettext("Pin %(lane)s"), { lane: title }),
      ),
    );
  }
}

const set = (title, rows) => el("fieldset", {}, el("legend", { class: "menu-head" }, title), ...rows);

const action = (verb, lane, look, title) =>
  el(
    "button",
    {
      class: "btn btn-sm btn-icon btn-quiet",
      type: "button",
      "data-do": verb,
      "data-lane": lane,
      title,
      "aria-label": title,
    },
    icon(look),
  );

/** Return a selector of the same control once the menu is drawn anew. */
function placeOf(control) {
  if (control instanceof HTMLInputElement) return `[value="${CSS.escape(control.value)}"]`;
  return `[data-do="${control.dataset.do}"][data-lane="${CSS.escape(control.dataset.lane ?? "")}"]`;
}
