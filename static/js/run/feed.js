/** Fills the store: series and spans by HTTP when a tab wants them, then frames over the websocket, each counted once. */

import { get } from "../api.js";
import { atMostEvery } from "../refresh.js";
import { openFeed } from "../socket.js";
import { Lanes } from "../timeline/lanes.js";
import { SeriesLoader } from "./series-loader.js";
import { stepAt } from "./step-facts.js";

const MAX_SPANS = 60000;
const RECENT_STEPS = 12; // of a long run, read whole
const STALE_MS = 2000; // between two reads of what frames have outdated
const FIRST_RETRY_MS = 1000; // after a read that failed; doubled up to
const LONGEST_RETRY_MS = 30_000;

export class Feed {
  constructor(store, page, view) {
    this.store = store;
    this.page = page;
    this.wantsSpans = false;
    this.axis = "step"; // that charts show
    this.loader = new SeriesLoader({
      store,
      api: page.api,
      view,
      onProblem: (error) => (error === null ? this.#worked() : this.#failed(error)),
    });
    this.socket = null;
    this.retryTimer = 0;
    this.retryMs = FIRST_RETRY_MS;
    /** @type {() => void} */
    this.isKnown = () => {};
    /** Settles when the store knows which metrics exist. */
    this.known = new Promise((/** @type {(value?: undefined) => void} */ resolve) => {
      this.isKnown = resolve;
    });
    /** @type {(error: unknown) => void} */
    this.onProblem = () => {};
    /** @type {(header: any) => void} */
    this.onRun = () => {};
    /** @type {(about: { isKnown: boolean }) => void} the run was deleted; not known: or is not the reader's to see */
    this.onGone = () => {};
    this.onReset = () => {};
    store.on(
      "frame",
      atMostEvery(STALE_MS, async () => this.#refresh()),
    );
  }

  /** Learn which metrics exist, and follow from there. */
  async start() {
    const { through_seq: newest, metrics } = await get(`${this.page.api}/metrics`);
    for (const known of metrics) this.store.know(known);
    this.isKnown();
    this.#follow(newest);
  }

  #follow(seq) {
    this.socket = openFeed({
      path: `/ws/runs/${this.page.id}`,
      after: this.store.startAt(seq),
      onMessage: (message) => this.#receive(message),
      onReset: () => this.#reload(),
      onGone: () => this.onGone({ isKnown: false }),
    });
  }

  /** Let a part of the page have these series and no others; those that are there already cost nothing. */
  hold(holder, names) {
    this.loader.hold(holder, names);
  }

  /** Read what is wanted and could not be read; happens by itself, too. */
  retry() {
    if (this.wantsSpans && this.store.lanesThrough === null) this.#loadSpans();
    if (this.#lacksAxis) this.#loadAxis();
    this.loader.retry();
  }

  /** Have what puts steps on this x axis in the store, and what follows while the run goes on. */
  async wantAxis(axis) {
    this.axis = axis;
    if (axis === "time") await this.wantSpans();
    else if (axis !== "step") await this.#loadAxis();
  }

  async #loadAxis() {
    try {
      this.store.takeAxis(await get(`${this.page.api}/axis?x=${this.axis}`));
    } catch (error) {
      this.#failed(error);
    }
  }

  /** Have the spans of the timeline in the store. */
  async wantSpans() {
    this.wantsSpans = true;
    if (this.store.lanesThrough === null) await this.#loadSpans();
  }

  /** Return the step at x of an axis of ../charts/axes.js; of a Unix time in seconds, when its spans are read; or null. */
  async stepOf({ x, axis }) {
    if (axis !== "time") return this.store.stepAt(axis, x * (1 - 1e-12)); // a place is the end of its step
    await this.wantSpans();
    const { lanes } = this.store;
    return stepAt(lanes, lanes.clock.offset(String(BigInt(Math.round(x * 1e6)) * 1000n)));
  }

  #receive(message) {
    if (message.type === "frame") this.store.apply(message);
    else if (message.type === "run") this.onRun(message.run);
    else if (message.type === "gone") this.onGone({ isKnown: true });
  }

  /** Read everything again: the frames in between are folded away. Raises Error if the console does not answer. */
  async #reload() {
    const { through_seq: newest } = await get(`${this.page.api}/metrics`);
    this.store.reset();
    try {
      await this.loader.reload();
    } catch (error) {
      this.onProblem(error); // who reads everything again tries again
      throw error;
    }
    const through = this.store.startAt(newest);
    if (this.wantsSpans) await this.#loadSpans();
    if (this.#lacksAxis) await this.#loadAxis();
    this.onReset();
    return through;
  }

  get #lacksAxis() {
    return !["step", "time"].includes(this.axis) && !this.store.axes.has(this.axis);
  }

  /** Read again what grew too long to be drawn whole, and where the newest steps stand. */
  #refresh() {
    if (!["step", "time"].includes(this.axis)) this.#loadAxis();
    const long = [...this.store.series.values()].filter((series) => series.isStale);
    for (const series of long) series.isStale = false;
    if (long.length) this.loader.renew(new Set(long.map((series) => series.name)));
  }

  /** Return Lanes with every span of [from, to] (seconds of the store's lanes), or null. */
  async spanWindow({ from, to }) {
    const { lanes } = this.store;
    const query = new URLSearchParams({
      from_ns: lanes.clock.absolute(from),
      to_ns: lanes.clock.absolute(to),
      limit: String(MAX_SPANS),
    });
    try {
      const answer = await get(`${this.page.api}/spans?${query}`);
      const found = new Lanes(this.store.branches, lanes.clock);
      for (const column of answer.lanes) found.add(column, answer.phases);
      return found;
    } catch (error) {
      this.onProblem(error);
      return null;
    }
  }

  /** Return where the newest steps of an answer begin, in seconds of the store's lanes. */
  #recentCut(answer) {
    const found = new Lanes(this.store.branches, this.store.lanes.clock);
    for (const column of answer.lanes) found.add(column, answer.phases);
    return found.latestSteps(RECENT_STEPS)?.[0] ?? Infinity;
  }

  async #loadSpans() {
    try {
      for (let tries = 0; tries < 5; tries += 1) {
        const answer = await get(`${this.page.api}/spans?limit=${MAX_SPANS}`);
        const cut = answer.n < answer.of ? this.#recentCut(answer) : Infinity;
        const from = this.store.lanes.clock.absolute(cut === Infinity ? 0 : cut);
        const recent = cut === Infinity ? null : await get(`${this.page.api}/spans?from_ns=${from}&limit=${MAX_SPANS}`);
        if (this.store.takeSpans(answer, recent, cut)) break;
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  #worked() {
    this.retryMs = FIRST_RETRY_MS;
    this.onProblem(null);
  }

  /** Say what went wrong, and read what is missing again after a while. */
  #failed(error) {
    this.onProblem(error);
    if (this.retryTimer) return;
    this.retryTimer = setTimeout(() => {
      this.retryTimer = 0;
      this.retry();
    }, this.retryMs);
    this.retryMs = Math.min(LONGEST_RETRY_MS, this.retryMs * 2);
  }
}
