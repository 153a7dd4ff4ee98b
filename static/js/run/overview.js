/** The overview: chips, eight charts, the last steps by rank, what happened, and samples of the latest step. */

import { get } from "../api.js";
import { Chart } from "../charts/chart.js";
import * as numbers from "../charts/numbers.js";
import { field, find } from "../dom.js";
import { el, fill, gettext, grouped, icon, write } from "../format.js";
import { phaseLegend } from "./legend.js";
import { finalWord, mark, oneLine, reward } from "./sample.js";
import { PhaseTimeline } from "./timeline.js";

const MAX_LANES = 4;
const STEPS = 3;
const EVENTS = 40; // the list scrolls
const ROWS = 8;
const SOON_MS = 300; // several of them change together

export class Overview {
  constructor({ page, store, feed, view, phases, large }) {
    this.page = page;
    this.store = store;
    this.feed = feed;
    this.view = view;
    this.phases = phases;
    this.large = large;
    /** @type {Map<string, () => void>} by key of a chart: shows it as large as the window */
    this.openers = new Map();
    this.isShown = false;
    this.turn = 0; // of reading samples
    /** @type {() => { at: string, verb: string, text: string, step: number | null }[]} alerts and symptoms */
    this.found = () => [];
    this.names = page.charts.flatMap((plan) => plan.lines.map((line) => line.name));
    this.#charts();
    this.timeline = new PhaseTimeline(find('canvas[data-canvas="steps"]'), {
      lanes: store.lanes,
      phases,
      isInteractive: false,
      look: { laneHeight: 20, gap: 4, labelWidth: 76 },
      pick: (lanes) => this.#pick(lanes),
    });
    store.on("spans", () => this.#steps());
    store.on("notes", () => this.#events());
    for (const topic of ["samples", "branches"]) store.on(topic, () => this.#samplesSoon());
    store.on("artifacts", () => this.#events());
  }

  /** Show the tab; the first time its parts are read. */
  show() {
    if (!this.isShown) {
      this.isShown = true;
      this.feed.hold("overview", this.names);
      this.feed.wantSpans().then(() => this.#steps());
      this.#events();
      this.#samples();
    }
    this.timeline.draw();
    this.large.restore((key) => this.openers.get(key)?.());
  }

  /** Take a new header: chips, and whether the lanes still grow. */
  update(header) {
    this.timeline.isLive = ["running", "stopping"].includes(header.state);
    const hasEnded = ["finished", "failed", "stopped"].includes(header.state);
    for (const chip of this.page.chips) this.#chip(chip, header.latest_values?.[chip.name], hasEnded);
    const isState = this.state !== header.state;
    this.state = header.state;
    if (isState && this.isShown) this.#events();
    const reason =
      header.state === "queued"
        ? gettext("It is queued; the phases of its steps appear here.")
        : gettext("No phase measured yet.");
    if (this.page.isNative) write(field("steps-empty"), reason); // of other trainers the page says it for good
    write(field("latest-empty"), this.page.sampleNote || noSamples(header));
  }

  /** Something of the history changed that no frame tells. */
  refresh() {
    this.waitingEvents ||= setTimeout(() => {
      this.waitingEvents = 0;
      this.#events();
    }, SOON_MS);
  }

  #charts() {
    for (const plan of this.page.charts) {
      const body = find(`[data-plan="${plan.key}"]`);
      const head = body.previousElementSibling ?? body;
      const lines = plan.lines.map((line) => ({
        ...line,
        dash: line.is_dashed,
        isPoints: line.is_points,
        fixed: true,
      }));
      if (lines[0] && !plan.is_stacked) this.#colorLines(lines);
      const parts = {
        body,
        value: head.querySelector('[data-part="value"]'),
        points: head.querySelector('[data-part="points"]'),
      };
      const plot = {
        lines,
        unit: plan.unit,
        stacked: plan.is_stacked,
        limits: plan.limits,
        band: bandOf(this.page, plan),
      };
      new Chart(parts, plot, this.store, this.view);
      const [title, hint] = ["h2", ".card-note"].map((selector) => find(selector, head).textContent ?? "");
      const open = () => this.large.open({ key: plan.key, title, hint, plot });
      this.openers.set(plan.key, open);
      find('button[data-action="full"]', head).addEventListener("click", open);
    }
  }

  /** The first line has the run's color; another one that would have the same takes the next. */
  #colorLines(lines) {
    const own = `--run-${this.page.color % 10}`;
    lines[0].color = own;
    for (const line of lines.slice(1)) if (line.color === own) line.color = "--run-0";
  }

  #chip(chip, raw, hasEnded) {
    const node = find(`[data-chip="${chip.name}"]`);
    const value = typeof raw === "string" ? Number(raw) : raw;
    const isMissing = value === null || value === undefined;
    const isOdd = !isMissing && !Number.isFinite(value);
    const fires =
      isOdd || (!isMissing && chip.limit !== null && (chip.side === "above" ? value > chip.limit : value < chip.limit));
    const level = isMissing ? "missing" : fires ? "fires" : chip.limit === null ? "neutral" : "clear";
    if (node.dataset.level !== level || !node.dataset.drawn) {
      node.dataset.level = level;
      node.dataset.drawn = "1";
      const names = { missing: "help-circle", fires: "alert-triangle", clear: "check" };
      find('[data-part="icon"]', node).replaceChildren(...(names[level] ? [icon(names[level])] : []));
    }
    write(node.querySelector('[data-part="value"]'), isMissing ? "—" : numbers.metric(value, chip.unit));
    const sign = fires ? (chip.side === "above" ? ">" : "<") : chip.side === "above" ? "≤" : "≥";
    let note = chip.limit === null ? "" : `${sign} ${Number(chip.limit)}`;
    if (isMissing) note = hasEnded ? gettext("not reported") : gettext("no data yet");
    else if (isOdd) note = gettext("not a finite number");
    write(node.querySelector('[data-part="note"]'), note);
  }

  #pick(lanes) {
    const workers = lanes.filter(({ role, rows }) => !["driver", "runner"].includes(role) && rows[0].length);
    return (workers.length ? workers : lanes.filter(({ rows }) => rows[0].length)).slice(0, MAX_LANES);
  }

  #steps() {
    const window = this.store.lanes.latestSteps(STEPS);
    field("steps-empty").hidden = window !== null;
    if (!window) return;
    const lanes = this.#pick(this.store.lanes.sorted);
    const [from, to, count] = window;
    this.timeline.zero = from;
    this.timeline.window = { from, to: to + (to - from) * (this.timeline.isLive ? 0.08 : 0) };
    this.timeline.draw();
    const hidden =
      this.store.lanes.sorted.filter(({ role, rows }) => !["driver", "runner"].includes(role) && rows[0].length)
        .length - lanes.length;
    const title = count === 1 ? gettext("Last step") : fill(gettext("Last %(count)s steps"), { count });
    write(
      field("steps-title"),
      hidden > 0
        ? fill(gettext("%(title)s, %(shown)s of %(all)s lanes"), {
            title,
            shown: lanes.length,
            all: lanes.length + hidden,
          })
        : title,
    );
    phaseLegend(find("[data-legend]"), this.phases, new Set(this.store.lanes.totals(from, to, lanes).keys()));
  }

  async #events() {
    if (!this.isShown || document.hidden) return;
    try {
      const { events } = await get(`${this.page.api}/events`);
      const newest = [...events, ...this.found()].sort((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, EVENTS);
      find("[data-events]").replaceChildren(...newest.map((event) => this.#event(event)));
    } catch {
      // The list stays as it was; the offline notice says why.
    }
  }

  #event(event) {
    const at = new Date(event.at);
    const icons = {
      artifact: "download",
      stop: "square",
      trainer_ready: "check",
      trainer_done: "check",
      trainer_failed: "x",
      queued: "clock",
      starting: "circle-half-2",
      running: "player-play",
      stopping: "square",
      stopped: "square",
      finished: "check",
      failed: "x",
      checkpoint: "bookmark",
      note: "info-circle",
      person_note: "note",
      alert: "bell",
      alarm: "alert-triangle",
      good: "circle-check",
      rename: "pencil",
    };
    return el(
      "li",
      {},
      el("time", { class: "num faint", datetime: event.at, title: numbers.moment(at) }, numbers.clock(at)),
      icon(icons[event.verb] ?? "info-circle"),
      el(
        "span",
        { class: "cut", title: event.text },
        event.text,
        event.actor ? el("span", { class: "faint" }, ` · ${event.actor}`) : null,
      ),
      el(
        "span",
        { class: "faint num" },
        Number.isInteger(event.step) && event.step >= 0 ? fill(gettext("step %(step)s"), { step: event.step }) : "",
      ),
    );
  }

  #samplesSoon() {
    if (!this.isShown || this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      this.#samples();
    }, 1000);
  }

  async #samples() {
    if (document.hidden) return;
    const turn = ++this.turn;
    try {
      const answer = await get(`${this.page.api}/samples?is_eval=false&page=1`);
      if (turn !== this.turn) return; // a newer answer is on its way, or was quicker
      const rows = answer.samples.filter((row) => !this.store.branches.isDead(row.attempt, row.step));
      field("latest-empty").hidden = rows.length > 0;
      if (!rows.length) return;
      const step = Math.max(...rows.map((row) => row.step));
      const latest = rows.filter((row) => row.step === step);
      write(field("latest-title"), fill(gettext("Samples of step %(step)s"), { step }));
      const scored = latest.filter((row) => row.reward !== null);
      const right = scored.filter((row) => row.reward >= 1).length;
      write(
        field("latest-note"),
        fill(gettext("%(count)s kept, %(right)s with full reward"), {
          count: grouped(latest.length),
          right: grouped(right),
        }),
      );
      const groups = new Map();
      for (const row of latest) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
      const spread = latest.toSorted((a, b) => a.index - b.index || a.group - b.group); // one of each prompt first
      find("[data-latest]").replaceChildren(
        ...spread.slice(0, ROWS).map((row) => this.#sample(row, groups.get(row.group))),
      );
    } catch {
      // What is there stays; the offline notice says why.
    }
  }

  #sample(row, group) {
    const full = group.filter((one) => one.reward >= 1).length;
    return el(
      "tr",
      {},
      el("td", { class: "num" }, mark(row.reward), reward(row.reward)),
      el("td", { class: "cut", title: row.prompt }, oneLine(row.prompt)),
      el(
        "td",
        { class: `num cut${row.reward >= 1 ? "" : " is-wrong"}`, title: row.completion },
        finalWord(row.completion),
      ),
      el("td", { class: "num cut", title: row.expected }, row.expected || "—"),
      el("td", { class: "num" }, grouped(row.tokens)),
      el("td", { class: "num" }, `${full}/${group.length}`),
    );
  }
}

/** The band of a chart's metric; where it shows several, of the first, in whose unit all are. */
function bandOf(page, plan) {
  return plan.is_stacked ? undefined : page.bands[plan.lines[0]?.name];
}

/** Why the table of samples is empty. */
function noSamples(header) {
  return header.state === "queued" ? gettext("It is queued; its samples appear here.") : gettext("No sample yet.");
}
