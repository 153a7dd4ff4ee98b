/** Fills the store: series and spans by HTTP when a tab wants them, then frames over the websocket, each counted once. */

import { get } from "../api.js";
import { openFeed } from "../socket.js";
import { Lanes } from "../timeline/lanes.js";

const POINTS = 1000;
const NAMES_PER_REQUEST = 40;
const MAX_SPANS = 60000;
const RECENT_STEPS = 12; // of a long run, read whole
const FIRST_RETRY_MS = 1000; // after a read that failed; doubled up to
const LONGEST_RETRY_MS = 30_000;

export class Feed {
  constructor(store, page, view) {
    this.store = store;
    this.page = page;
    this.view = view;
    this.wanted = new Set();
    this.wantsSpans = false;
    this.inFlight = new Set();
    this.socket = null;
    this.ready = null; // while nothing follows yet
    this.retryTimer = 0;
    this.retryMs = FIRST_RETRY_MS;
    /** @type {(error: unknown) => void} */
    this.onProblem = () => {};
    /** @type {(header: any) => void} */
    this.onRun = () => {};
    this.onReset = () => {};
    store.on("names", () => this.#loadMissing());
    store.on("frame", () => this.#refresh());
  }

  /** Learn which metrics exist, have `names` of them, and follow from there. */
  async start(names) {
    const { through_seq: newest, metrics } = await get(`${this.page.api}/metrics`);
    for (const known of metrics) this.store.know(known);
    await this.want(names);
    this.#follow(newest);
  }

  #follow(seq) {
    this.socket = openFeed({
      path: `/ws/runs/${this.page.id}`,
      after: this.store.startAt(seq),
      onMessage: (message) => this.#receive(message),
      onReset: () => this.#reload(),
    });
  }

  /** Have these metrics in the store; those that are there already cost nothing. */
  want(names) {
    for (const name of names) this.wanted.add(name);
    return this.#loadMissing();
  }

  /** Read what is wanted and could not be read; happens by itself, too. */
  retry() {
    if (this.wantsSpans && this.store.lanesThrough === null) this.#loadSpans();
    return this.#loadMissing();
  }

  /** Have the spans of the timeline in the store. */
  async wantSpans() {
    this.wantsSpans = true;
    if (this.store.lanesThrough === null) await this.#loadSpans();
  }

  /** Read the wanted series again with another smoothing, where the server had to leave points out. */
  async resmooth() {
    const weight = this.view.smoothing;
    const stale = new Set();
    for (const series of this.store.series.values()) {
      if (series.isThinned && (series.served?.weight ?? -1) !== weight) stale.add(series.name);
    }
    await this.#load([...stale]);
  }

  /** Read finer points of [min, max] for thinned series. */
  async zoom(zoom, names) {
    if (!zoom) return;
    const thinned = names.filter((name) =>
      this.store.of(name).some((series) => series.isThinned && (series.kind === "system") === zoom.isTime),
    );
    for (const part of batches(thinned)) {
      const scale = zoom.isTime ? 1e9 : 1;
      const window = { from: Math.floor(zoom.min * scale), to: Math.ceil(zoom.max * scale) };
      try {
        const answer = await get(`${this.#seriesUrl(part)}&from=${BigInt(window.from)}&to=${BigInt(window.to)}`);
        this.store.takeDetail(answer, { from: window.from / scale, to: window.to / scale });
      } catch (error) {
        this.onProblem(error);
      }
    }
  }

  #receive(message) {
    if (message.type === "frame") this.store.apply(message);
    else if (message.type === "run") this.onRun(message.run ?? message);
  }

  /** Read everything again: the frames in between are folded away. Raises Error if the console does not answer. */
  async #reload() {
    const { through_seq: newest } = await get(`${this.page.api}/metrics`);
    this.store.reset();
    this.inFlight.clear();
    await this.#load([...this.wanted], { isStrict: true });
    const through = this.store.startAt(newest);
    if (this.wantsSpans) await this.#loadSpans();
    this.onReset();
    return through;
  }

  #loadMissing() {
    return this.#load([...this.wanted].filter((name) => !this.store.loaded.has(name) && !this.inFlight.has(name)));
  }

  /** Read again what grew too long to be drawn whole. */
  #refresh() {
    const long = new Set(
      [...this.store.series.values()].filter((series) => series.isStale).map((series) => series.name),
    );
    const names = [...long].filter((name) => !this.inFlight.has(name));
    if (names.length) this.#load(names);
  }

  /** Read series; each is complete through a frame of its own then. */
  async #load(names, { isStrict = false } = {}) {
    for (const part of batches(names)) {
      for (const name of part) this.inFlight.add(name);
      try {
        for (let tries = 0; tries < 5; tries += 1) {
          const weight = this.view.smoothing;
          const answer = await get(this.#seriesUrl(part));
          if (this.store.takeSeries(part, answer, weight)) break;
        }
        this.#worked();
      } catch (error) {
        if (isStrict) {
          // who reads everything again tries again
          this.onProblem(error);
          throw error;
        }
        this.#failed(error);
      } finally {
        for (const name of part) this.inFlight.delete(name);
      }
    }
  }

  #seriesUrl(names) {
    const query = new URLSearchParams({
      metrics: names.join(","),
      points: String(POINTS),
      smooth: String(this.view.smoothing),
    });
    return `${this.page.api}/series?${query}`;
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

function batches(names) {
  const parts = [];
  for (let i = 0; i < names.length; i += NAMES_PER_REQUEST) parts.push(names.slice(i, i + NAMES_PER_REQUEST));
  return parts;
}
