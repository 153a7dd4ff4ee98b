/** The timeline of phases: lanes by role and rank, the strip above them, a summary at the right, and the same as a table. */

import * as numbers from "../charts/numbers.js";
import { field, find } from "../dom.js";
import { el, fill, gettext, grouped, laneName, ngettext, write } from "../format.js";
import { phaseLegend } from "./legend.js";
import { PhaseTimeline, Strip } from "./timeline.js";

const TABLE_ROWS = 200;
const STEPS = 5; // on the screen when the tab opens
const button = (/** @type {string} */ name) => find(`button[data-timeline="${name}"]`);

export class TimelineTab {
  constructor({ page, store, feed, phases, query, captures }) {
    this.page = page;
    this.store = store;
    this.feed = feed;
    this.phases = phases;
    this.query = query;
    this.captures = captures;
    const look = { laneHeight: 22, detailHeight: 16, gap: 5, labelWidth: 92 };
    this.canvas = find('canvas[data-canvas="lanes"]');
    const pick = (lanes) => lanes.filter(({ rows }) => rows.some((row) => row.length));
    this.timeline = new PhaseTimeline(this.canvas, { lanes: store.lanes, phases, look, pick });
    this.strip = new Strip(find('canvas[data-canvas="strip"]'), this.timeline, {
      labelWidth: look.labelWidth,
    });
    this.pick = pick;
    this.timeline.addEventListener("window", () => this.#moved());
    this.timeline.addEventListener("selection", () => {
      this.#summary();
      this.#recorded();
    });
    this.timeline.addEventListener("hover", (event) => this.#tip(event.detail));
    store.on("spans", () => this.#grown());
    captures.addEventListener("change", () => this.#soon());
    for (const [name, act] of Object.entries(this.timeline.buttons)) button(name).addEventListener("click", act);
    button("follow").addEventListener("click", () =>
      this.#follow(button("follow").getAttribute("aria-pressed") !== "true"),
    );
    find("select[data-selection-lane]").addEventListener("change", () => this.#summary());
    find("details.run-span-table").addEventListener("toggle", () => this.#table());
    this.isFollowing = true;
  }

  show() {
    this.feed.wantSpans().then(() => {
      this.#restore();
      this.#grown();
    });
    this.timeline.draw();
  }

  update(header) {
    this.timeline.isLive = ["running", "stopping"].includes(header.state);
    const waits = header.state === "queued" || header.state === "starting";
    if (this.page.isNative)
      write(
        field("timeline-empty").firstElementChild,
        waits
          ? gettext("It has not started. The phases of its first step appear here while it works.")
          : gettext("The trainer reported no phase."),
      );
  }

  #isActive() {
    return !find('[data-panel="timeline"]').hidden;
  }

  #restore() {
    if (this.isRestored || !this.store.lanes.numSpans) return;
    this.isRestored = true;
    const [from, to] = this.#asked() ?? (this.query.get("window") ?? "").split("-").map(Number);
    if (Number.isFinite(from) && to > from) this.timeline.setWindow({ from, to });
    else if (this.query.get("window") !== "all" && this.store.lanes.steps.size > 2 * STEPS)
      this.timeline.setWindow(this.#latest());
  }

  /** Return the window that a link from elsewhere names, by `from` and `to` in Unix ns or by `at_step`; it then becomes the page's own. */
  #asked() {
    const moments = [this.query.get("from"), this.query.get("to")];
    const step = this.store.lanes.steps.get(Number(this.query.get("at_step") ?? Number.NaN));
    for (const name of ["from", "to", "at_step"]) this.query.set(name, "");
    if (step) return [step[0] - 0.05 * (step[1] - step[0]), step[1] + 0.05 * (step[1] - step[0])];
    if (!moments.every((moment) => /^\d{16,19}$/.test(moment ?? ""))) return null;
    const [from, to] = moments.map((moment) => this.store.lanes.clock.offset(moment));
    const margin = Math.max(0.05 * (to - from), 1e-3);
    return [from - margin, to + margin];
  }

  #latest() {
    const [from, to] = this.store.lanes.latestSteps(STEPS);
    return { from, to: Math.max(to, this.timeline.extent.to) + (to - from) * 0.04 };
  }

  /** New spans came: grow the canvas, keep the window where people put it, and follow only if they did not. */
  #grown() {
    if (!this.#isActive()) return;
    const lanes = this.pick(this.store.lanes.sorted);
    const isEmpty = lanes.length === 0;
    field("timeline-empty").hidden = !isEmpty;
    find(".run-timeline-body").hidden = isEmpty;
    if (isEmpty) return;
    this.timeline.painter.look.laneHeight = lanes.length <= 8 ? 30 : 22;
    const height = this.timeline.painter.needed(lanes);
    if (this.height !== height) {
      this.height = height;
      this.canvas.style.height = `${height}px`;
      this.strip.canvas.style.height = `${this.strip.painter.needed(lanes)}px`;
    }
    if (this.isFollowing && this.timeline.window) {
      const { from, to } = this.timeline.window;
      const end = this.timeline.extent.to + (to - from) * 0.05;
      if (end > to) this.timeline.window = { from: from + end - to, to: end };
    }
    this.timeline.draw();
    this.strip.draw();
    this.#lanes(lanes);
    this.#soon();
    const steps = [...this.store.lanes.steps.keys()].filter((step) => step > 0).length;
    write(
      field("timeline-note"),
      fill(ngettext("%(spans)s spans, %(steps)s step, %(time)s", "%(spans)s spans, %(steps)s steps, %(time)s", steps), {
        spans: this.#spans(),
        steps: grouped(steps),
        time: numbers.duration(this.timeline.extent.to - this.timeline.extent.from),
      }),
    );
  }

  #spans() {
    const { numSpans } = this.store.lanes;
    if (this.store.hasAllSpans) return grouped(numSpans);
    return fill(gettext("%(n)s longest of %(of)s"), {
      n: grouped(numSpans),
      of: grouped(Math.max(this.store.numAllSpans, numSpans)),
    });
  }

  #follow(isFollowing) {
    this.isFollowing = isFollowing;
    button("follow").setAttribute("aria-pressed", String(isFollowing));
    if (isFollowing) this.#grown();
  }

  #moved() {
    const { window, extent } = this.timeline;
    this.#follow(!window || window.to >= extent.to);
    if (!this.store.hasAllSpans && window) this.#refine(window);
    this.query.set("window", window ? `${window.from.toFixed(4)}-${window.to.toFixed(4)}` : "all");
    this.#soon();
  }

  /** Of a long run only the longest spans were read at first: read all of this window. */
  #refine(window) {
    clearTimeout(this.refining);
    this.refining = setTimeout(async () => {
      const room = (window.to - window.from) * 0.5;
      const wide = { from: window.from - room, to: Math.min(window.to + room, this.timeline.extent.to) };
      const lanes = await this.feed.spanWindow(wide);
      if (!lanes) return;
      this.timeline.detail = { ...wide, lanes };
      this.timeline.draw();
      this.#soon();
    }, 200);
  }

  #soon() {
    this.summing ||= setTimeout(() => {
      this.summing = 0;
      this.#summary();
      this.#table();
      const { from, to } = this.timeline.view;
      this.#recorded();
      phaseLegend(find("[data-timeline-legend]"), this.phases, new Set(this.store.lanes.totals(from, to).keys()));
    }, 120);
  }

  /** Lead to the trace of what is selected, or else on the screen, where these steps were recorded. */
  #recorded() {
    const { from, to } = this.timeline.selection ?? this.timeline.view;
    const { lanes } = this.store;
    const overlaps = ({ trace_url: url, steps }) => {
      const [begin, end] = url && steps ? [lanes.steps.get(steps[0])?.[0], lanes.steps.get(steps[1])?.[1]] : [];
      return begin < to && end > from;
    };
    const found = this.captures.list.find(overlaps);
    const link = find('a[data-timeline="trace"]');
    link.hidden = !found;
    if (!found) return;
    link.href = this.timeline.selection
      ? `${found.trace_url}?from=${lanes.clock.absolute(from)}&to=${lanes.clock.absolute(to)}`
      : found.trace_url;
  }

  #lanes(lanes) {
    const select = find("select[data-selection-lane]");
    const names = lanes.map(laneName);
    const signature = names.join();
    if (select.dataset.shown === signature) return;
    select.dataset.shown = signature;
    const chosen = select.value;
    select.replaceChildren(
      el("option", { value: "" }, gettext("All lanes")),
      ...names.map((name) => el("option", { value: name }, name)),
    );
    select.value = names.includes(chosen) ? chosen : "";
  }

  #summary() {
    const { selection, view, extent } = this.timeline;
    button("selection").disabled = !selection;
    const from = Math.max((selection ?? view).from, extent.from);
    const to = Math.min((selection ?? view).to, extent.to);
    write(field("selection-title"), selection ? gettext("Selection") : gettext("On the screen"));
    const zero = this.store.lanes.start;
    write(
      field("selection-note"),
      `${numbers.duration(Math.max(from - zero, 0))} – ${numbers.duration(Math.max(to - zero, 0))}`,
    );
    const chosen = find("select[data-selection-lane]").value;
    const lanes = this.pick(this.timeline.source.sorted).filter((lane) => !chosen || laneName(lane) === chosen);
    const all = Math.max(to - from, 0) * lanes.length;
    const totals = this.store.lanes.totals(from, to, lanes);
    const worked = [...totals.values()].reduce((sum, seconds) => sum + seconds, 0);
    const row = (attributes, label, seconds) =>
      el(
        "tr",
        {},
        el("td", {}, el("span", { class: "legend" }, attributes ? el("i", attributes) : null, label)),
        el("td", { class: "num" }, numbers.seconds(seconds)),
        el("td", { class: "num" }, all > 0 ? `${((100 * seconds) / all).toFixed(1)} %` : "—"),
      );
    const rows = [...this.phases.values()]
      .filter((phase) => totals.has(phase.key))
      .map((phase) => row({ class: "swatch", "data-phase": phase.key }, phase.label, totals.get(phase.key)));
    rows.push(row({ class: "swatch is-waiting" }, gettext("Waiting"), Math.max(all - worked, 0)));
    rows.push(
      row(
        null,
        lanes.length > 1
          ? fill(gettext("Wall time of %(count)s lanes"), { count: lanes.length })
          : gettext("Wall time"),
        all,
      ),
    );
    find("[data-selection-rows]").replaceChildren(...rows);
  }

  #tip(found) {
    const tip = field("tip");
    tip.hidden = !found;
    if (!found) return;
    const { lane, row, index, time } = found;
    const parts = [el("b", {}, row ? this.timeline.painter.text(row, index) : gettext("Waiting"))];
    if (row) {
      const phase = this.phases.get(row.phase[index])?.label ?? row.phase[index];
      if (row.name[index]) parts.push(el("span", { class: "faint" }, phase));
      if (row.step[index] >= 0)
        parts.push(el("span", { class: "num" }, fill(gettext("step %(step)s"), { step: row.step[index] })));
      if (row.isDead[index])
        parts.push(
          el(
            "span",
            { class: "tag" },
            fill(gettext("dead branch, attempt %(attempt)s"), { attempt: row.attempt[index] }),
          ),
        );
      parts.push(el("span", { class: "num" }, numbers.duration(row.end[index] - row.start[index])));
      parts.push(
        el(
          "span",
          { class: "num faint" },
          fill(gettext("at %(time)s"), { time: numbers.clock(this.store.lanes.clock.date(row.start[index])) }),
        ),
      );
    } else {
      parts.push(
        el(
          "span",
          { class: "num faint" },
          fill(gettext("at %(time)s"), { time: numbers.clock(this.store.lanes.clock.date(time)) }),
        ),
      );
    }
    tip.replaceChildren(el("span", { class: "faint" }, laneName(lane)), ...parts);
    const box = (tip.parentElement ?? tip).getBoundingClientRect();
    const canvas = this.canvas.getBoundingClientRect();
    tip.style.left = `${Math.min(found.x + canvas.left - box.left + 12, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${found.y + canvas.top - box.top + 16}px`;
  }

  #table() {
    if (!find("details.run-span-table").open) return;
    const { from, to } = this.timeline.view;
    const rows = [];
    for (const lane of this.pick(this.timeline.source.sorted)) {
      for (const row of lane.rows) {
        if (!row) continue;
        for (let i = row.firstAfter(from); i < row.length && row.start[i] < to && rows.length < TABLE_ROWS; i += 1) {
          rows.push(
            el(
              "tr",
              {},
              el("td", {}, laneName(lane)),
              el(
                "td",
                {},
                this.timeline.painter.text(row, i),
                row.isDead[i] ? el("span", { class: "tag" }, gettext("dead branch")) : null,
              ),
              el("td", { class: "num" }, row.step[i] >= 0 ? grouped(row.step[i]) : "—"),
              el("td", { class: "num" }, numbers.clock(this.store.lanes.clock.date(row.start[i]))),
              el("td", { class: "num" }, numbers.duration(row.end[i] - row.start[i])),
            ),
          );
        }
      }
    }
    find("[data-span-rows]").replaceChildren(...rows);
  }
}
