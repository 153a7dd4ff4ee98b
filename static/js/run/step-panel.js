/** One step beside the charts: what a click on a point asks for. Its address is an entry of the history: *back* closes it. */

import { get } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { find } from "../dom.js";
import { el, fill, gettext, grouped, laneName, messageOf, ngettext } from "../format.js";
import { metricInfo } from "./metric-plot.js";
import { mark, oneLine, reward } from "./sample.js";
import { linesOf, logWindow, nearestOf, phasesOf, statesOf, whenWas } from "./step-facts.js";

const SAMPLES = 8;
const LINES = 40;
const LINES_AROUND = 200; // with those of the steps beside it
const OWN_LINE_SECONDS = 2; // after the end of a step, in which its driver tells of it
const BEFORE_SECONDS = 0.5; // lines that come together have the time of the first
const PHASES = 8;
const MOST_READINGS = 40; // of machines, with one request
const READING_POINTS = 64;
const NEAR_SECONDS = 60; // on both sides of a step in which nothing was read
const NEAR_POINTS = 256;

export class StepPanel {
  constructor({ page, store, feed, query, phases }) {
    this.page = page;
    this.store = store;
    this.feed = feed;
    this.query = query;
    this.phases = phases;
    this.node = find("aside[data-step-panel]");
    this.home = /** @type {HTMLElement} */ (this.node.parentElement);
    /** @type {number | null} */
    this.step = null;
    /** @type {HTMLElement | null} had the focus when a point was picked: it gets it back */
    this.before = null;
    this.giveUp = new AbortController();
    find("button[data-panel-close]", this.node).addEventListener("click", () => this.close());
    for (const button of this.node.querySelectorAll("button[data-panel-by]"))
      button.addEventListener("click", () => this.#move(Number(button.dataset.panelBy)));
    addEventListener("popstate", () => this.restore());
    addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.step === null) return;
      if ([...document.querySelectorAll("dialog[open]")].some((dialog) => !dialog.contains(this.node))) return;
      event.preventDefault(); // the large chart stays
      this.close();
    });
    this.node.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault(); // and not to the chart beside the one that was left
      this.#move(by);
    });
  }

  /** Open what the address says, or close. */
  restore() {
    const asked = new URLSearchParams(location.search).get("point");
    if (asked !== null && /^\d{1,9}$/.test(asked)) this.#show(Number(asked));
    else this.#hide();
  }

  /** Open the step of a clicked point, which stands at x of an axis of ../charts/axes.js; return false where none is. */
  async pick(/** @type {{ x: number, axis: string }} */ point) {
    const step = await this.feed.stepOf(point);
    if (step === null || step < 0) return false;
    const isOpening = this.step === null;
    if (isOpening) this.query.push("point", String(step));
    else this.query.set("point", String(step));
    this.#show(step);
    if (!isOpening) return true;
    this.before = /** @type {HTMLElement | null} */ (document.activeElement);
    this.node.focus({ preventScroll: true });
    return true;
  }

  /** Close it: where it was opened here, the way *back* does. */
  close() {
    if (history.state?.isPushed) {
      history.back();
      return;
    }
    this.query.set("point", "");
    this.#hide();
  }

  #move(by) {
    this.pick({ x: Math.max(0, this.step + by), axis: "step" });
  }

  /** Stand where it can be seen and used: in the dialog of a large chart while one is open, which hides all else. */
  settle() {
    const place = document.querySelector('dialog[data-dialog="chart"][open]') ?? this.home;
    if (this.node.parentElement !== place) place.append(this.node);
  }

  #hide() {
    this.giveUp.abort();
    this.step = null;
    const hadFocus = this.node.contains(document.activeElement);
    this.node.hidden = true;
    document.body.classList.remove("has-step");
    if (hadFocus) this.before?.focus({ preventScroll: true });
    this.before = null;
  }

  #show(step) {
    if (step === this.step) return;
    this.giveUp.abort();
    this.giveUp = new AbortController();
    const { signal } = this.giveUp;
    this.step = step;
    this.node.hidden = false;
    this.settle();
    document.body.classList.add("has-step");
    find("h2", this.node).textContent = fill(gettext("Step %(step)s"), { step: grouped(step) });
    find("[data-panel-place]", this.node).textContent = "";
    this.#fill("samples", signal, () => this.#samples(step, signal));
    const moment = this.#when(step);
    for (const [name, build] of Object.entries({ phases: this.#phases, logs: this.#logs, nodes: this.#nodes }))
      this.#fill(name, signal, async () => build.call(this, await moment, signal));
  }

  #part(name) {
    return find(`[data-step-part="${name}"]`, this.node);
  }

  /** Put what `build` returns into a part; a sentence where it fails or nothing is there. */
  async #fill(name, signal, build) {
    const part = this.#part(name);
    part.replaceChildren(el("p", { class: "faint" }, "…"));
    let found;
    try {
      found = await build();
    } catch (error) {
      found = [el("p", { class: "bad" }, messageOf(error))];
    }
    if (!signal.aborted) part.replaceChildren(...found);
  }

  /** Return when the step was, and tell it; null where no span says so. */
  async #when(step) {
    await this.feed.wantSpans();
    const { lanes } = this.store;
    const found = whenWas(lanes, step);
    if (found && step === this.step) {
      const moment = `${numbers.moment(lanes.clock.date(found.from))} · ${numbers.duration(found.to - found.from)}`;
      find("[data-panel-place]", this.node).textContent = found.isEstimated
        ? fill(gettext("about %(moment)s"), { moment })
        : moment;
    }
    return found;
  }

  async #samples(step, signal) {
    const { samples, total } = await get(`${this.page.api}/samples?step=${step}`, { signal });
    if (!total) return [nothing(gettext("No sample of this step was kept."))];
    const rows = samples
      .slice(0, SAMPLES)
      .map((row) =>
        el(
          "details",
          {},
          el("summary", {}, mark(row.reward), " ", reward(row.reward), " ", el("span", {}, oneLine(row.completion))),
          el("p", { class: "faint" }, row.prompt),
          el("p", {}, row.completion || gettext("(empty)")),
        ),
      );
    const link = el(
      "a",
      { href: `${this.page.url}/samples?step=${step}` },
      fill(ngettext("%(n)s sample of the step", "All %(n)s samples of the step", total), { n: grouped(total) }),
    );
    return [...rows, el("p", {}, link)];
  }

  async #phases(when) {
    if (!when) return [nothing(gettext("No phase of this step was reported."))];
    const lanes = await this.feed.spanWindow(when);
    const found = lanes ? phasesOf(lanes, when.from, when.to) : [];
    if (!found.length) return [nothing(gettext("No phase of this step was reported."))];
    const rows = found
      .slice(0, PHASES)
      .map(({ phase, seconds, share }) =>
        el(
          "tr",
          {},
          el("td", {}, el("i", { class: "swatch", "data-phase": phase }), " ", this.phases.get(phase)?.label ?? phase),
          el("td", { class: "num" }, numbers.duration(seconds)),
          el("td", { class: "num" }, `${(share * 100).toFixed(0)} %`),
        ),
      );
    const href = `${this.page.url}/timeline?at_step=${this.step}`;
    const note = gettext("Summed over all processes.");
    return [
      el("table", { class: "table" }, el("tbody", {}, ...rows)),
      el("p", { class: "faint" }, note, " ", el("a", { href }, gettext("The step on the timeline"))),
    ];
  }

  async #logs(when, signal) {
    if (!when) return [nothing(gettext("When this step was is not known."))];
    const { lanes } = this.store;
    const { clock } = lanes;
    const step = /** @type {number} */ (this.step);
    const { from, to, until } = logWindow(lanes, step, when, OWN_LINE_SECONDS);
    const at = clock.absolute(from);
    const query = new URLSearchParams({
      since: clock.absolute(from - BEFORE_SECONDS),
      until: clock.absolute(until),
      limit: String(LINES_AROUND),
    });
    const { lines } = await get(`${this.page.api}/logs?${query}`, { signal });
    const own = linesOf(lines, step, { from: clock.date(from).getTime(), to: clock.date(to).getTime() });
    const link = el("a", { href: `${this.page.url}/logs?at=${at}` }, gettext("The log from here on"));
    if (!own.length) return [nothing(gettext("No line was written in this step.")), el("p", {}, link)];
    const shown = own.slice(-LINES);
    const text = shown.map((line) => `${laneName(line)}  ${line.text}`).join("\n");
    const note = fill(gettext("The last %(n)s of its lines."), { n: grouped(shown.length) });
    return [
      el("pre", { class: "mono", tabindex: "0", role: "group", "aria-label": gettext("Log lines") }, text),
      el("p", { class: "faint" }, shown.length < own.length ? note : null, " ", link),
    ];
  }

  async #nodes(when, signal) {
    const { states, times } = when ? await this.#states(when, signal) : { states: [], times: [] };
    if (!states.length) return [nothing(gettext("No reading of the machines of this step."))];
    const rows = states.map(({ name, mean, most, lanes, sign }) => {
      const { label, unit, unit_text: word } = metricInfo(this.page, name);
      const shown = numbers.isInNumbers(unit) || !word ? label : `${label}, ${word}`;
      return el(
        "tr",
        {},
        el("td", { title: name }, shown, lanes > 1 ? el("span", { class: "faint" }, ` × ${lanes}`) : null),
        el("td", { class: "num" }, sign + numbers.metric(mean, unit)),
        el("td", { class: "num" }, sign + numbers.metric(most, unit)),
      );
    });
    const head = ["", gettext("mean"), gettext("most")].map((text) => el("th", { class: text ? "num" : "" }, text));
    const table = el("table", { class: "table" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
    return times.length ? [table, nothing(aboutOf(times))] : [table];
  }

  /** Return the states of the machines in a step, and when what stands for those was read that were not read in it. */
  async #states(when, signal) {
    const { clock } = this.store.lanes;
    const read = async (/** @type {string[]} */ names, /** @type {number} */ beside, /** @type {number} */ points) => {
      const query = new URLSearchParams({
        metrics: names.join(","),
        points: String(points),
        from: clock.absolute(when.from - beside),
        to: clock.absolute(when.to + beside),
      });
      return names.length ? (await get(`${this.page.api}/series?${query}`, { signal })).series : [];
    };
    await this.feed.known;
    const known = [...this.store.names.values()].filter(({ kind }) => kind === "system").map(({ name }) => name);
    const names = known.slice(0, MOST_READINGS);
    const own = statesOf(await read(names, 0, READING_POINTS));
    const unread = names.filter((name) => own.every((state) => state.name !== name));
    const stretch = { from: BigInt(clock.absolute(when.from)), to: BigInt(clock.absolute(when.to)) };
    const near = nearestOf(await read(unread, NEAR_SECONDS, NEAR_POINTS), stretch);
    const about = statesOf(near.series).map((state) => ({ ...state, sign: "≈ " }));
    return { states: [...own.map((state) => ({ ...state, sign: "" })), ...about], times: near.times };
  }
}

/** Say when what was read beside a step was read. */
function aboutOf(/** @type {bigint[]} */ times) {
  const [first, last] = [times[0], times[times.length - 1]].map((time) =>
    numbers.clock(new Date(Number(time / 1_000_000n))),
  );
  return fill(gettext("≈: not read in this step; these are the readings nearest to it, %(first)s to %(last)s."), {
    first,
    last,
  });
}

const nothing = (/** @type {string} */ sentence) => el("p", { class: "faint" }, sentence);
