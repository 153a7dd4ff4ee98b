/**
 * Reads the series that the page's parts hold, many with one request. A request is given up when nobody holds any of its
 * names any longer; what was let go stays for a while, so that scrolling back shows it at once. How a request looks and
 * what its answer is made of is known here alone.
 */

import { get } from "../api.js";

const POINTS = 600; // about two for each pixel of a card
const FINE_POINTS = 2000; // of a chart as large as the window
const NAMES_PER_REQUEST = 40;
const AT_ONCE = 2; // requests: what leaves the screen before its turn is never asked for
const KEPT = 240; // names that nobody holds
const TRIES = 5; // of an answer that ends before the frames that are kept

/** @import { Zoom } from "../charts/plot" */
/** @import { Smoothing } from "../charts/smoothing.js" */
/** @typedef {{ names: string[], giveUp: AbortController }} Request */

export class SeriesLoader {
  /**
   * @param {object} parts
   * @param {any} parts.store
   * @param {string} parts.api address of the run
   * @param {{ smoothing: Smoothing, zoom: Zoom | null }} parts.view
   * @param {(error: unknown) => void} parts.onProblem something could not be read; null: it works again
   * @param {(url: string, options?: { signal?: AbortSignal }) => Promise<any>} [parts.read]
   */
  constructor({ store, api, view, onProblem, read = get }) {
    this.store = store;
    this.api = api;
    this.view = view;
    this.onProblem = onProblem;
    this.read = read;
    /** @type {Map<string, string[]>} */
    this.holders = new Map();
    /** @type {Set<string>} */
    this.held = new Set();
    /** @type {Set<string>} */
    this.stale = new Set(); // there, and to be read again
    /** @type {Set<string>} */
    this.letGo = new Set(); // in the store, held by nobody; the longest ago first
    /** @type {Set<Request>} */
    this.requests = new Set();
    /** @type {Set<string>} */
    this.fine = new Set(); // to be read with more points: a large chart shows them
    this.isWaiting = false; // after a failure, until retry()
  }

  /** Let `holder` have these names and no others, the most urgent first. */
  hold(/** @type {string} */ holder, /** @type {string[]} */ names) {
    this.holders.set(holder, names);
    const before = this.held;
    this.held = new Set([...this.holders.values()].flat());
    for (const name of this.held) this.letGo.delete(name);
    for (const name of before) if (!this.held.has(name) && this.store.loaded.has(name)) this.letGo.add(name);
    for (const request of this.requests) {
      if (!request.names.some((name) => this.held.has(name))) this.#giveUp(request);
    }
    this.#forget(KEPT);
    this.#next();
    const fresh = names.filter((name) => !before.has(name));
    if (this.view.zoom) this.zoom(this.view.zoom, fresh);
  }

  /** Let a large chart have these series with all the points that it can show. */
  holdFine(/** @type {string[]} */ names) {
    for (const name of names) {
      const isThinned = this.store.of(name).some((/** @type {any} */ one) => one.isThinned);
      if (isThinned && !this.fine.has(name)) this.stale.add(name);
    }
    this.fine = new Set(names);
    this.hold("full", names);
  }

  /** Let go of what the large chart had. */
  releaseFine() {
    this.fine.clear();
    this.hold("full", []);
  }

  /** Read what could not be read. */
  retry() {
    this.isWaiting = false;
    this.#next();
  }

  /** Read these again; what is there stays until then. */
  renew(/** @type {Iterable<string>} */ names) {
    for (const name of names) this.stale.add(name);
    this.#next();
  }

  /** Read everything held again, and forget the rest. Raises Error if the console does not answer. */
  async reload() {
    for (const request of this.requests) this.#giveUp(request);
    this.letGo.clear();
    this.stale.clear();
    for (const part of batches([...this.held])) await this.#load(part, new AbortController().signal);
  }

  /** Read again with another smoothing what the server had to leave points out of. */
  resmooth() {
    this.#forget(0);
    const { text } = this.view.smoothing;
    const thinned = [...this.store.series.values()].filter((series) => series.isThinned);
    this.renew(thinned.filter((one) => one.served?.smoothing.text !== text).map((one) => one.name));
  }

  /**
   * Read finer points of a zoomed window for thinned series.
   *
   * @param {Zoom | null} zoom
   * @param {string[]} names
   */
  async zoom(zoom, names) {
    if (!zoom) return;
    for (const kind of ["metric", "system"]) {
      const window = this.store.windowOf(kind, zoom);
      if (window) await this.#refine(kind, window, names);
    }
  }

  /**
   * @param {string} kind
   * @param {{ from: number, to: number }} window
   * @param {string[]} names
   */
  async #refine(kind, window, names) {
    const span = window.to - window.from;
    const isCoarse = (/** @type {any} */ { kind: own, isThinned, detail }) =>
      own === kind &&
      isThinned &&
      !(detail && detail.from <= window.from && detail.to >= window.to && detail.span <= span);
    const scale = kind === "system" ? 1e9 : 1;
    const [from, to] = [Math.floor(window.from * scale), Math.ceil(window.to * scale)];
    for (const part of batches(names.filter((name) => this.store.of(name).some(isCoarse)))) {
      try {
        const answer = await this.read(`${this.#url(part)}&from=${BigInt(from)}&to=${BigInt(to)}`);
        this.store.takeDetail(answer, { from: from / scale, to: to / scale, span });
      } catch (error) {
        this.onProblem(error);
      }
    }
  }

  /** Ask for what is missing or stale, as far as there is a turn for it. */
  #next() {
    if (this.isWaiting) return;
    const asked = new Set([...this.requests].flatMap((request) => request.names));
    const missing = [...this.held].filter(
      (name) => !asked.has(name) && (this.stale.has(name) || !this.store.loaded.has(name)),
    );
    const coarse = missing.filter((name) => !this.fine.has(name));
    const fine = missing.filter((name) => this.fine.has(name));
    for (const names of [...batches(fine), ...batches(coarse)]) {
      if (this.requests.size >= AT_ONCE) return;
      this.#ask(names);
    }
  }

  async #ask(/** @type {string[]} */ names) {
    const request = { names, giveUp: new AbortController() };
    this.requests.add(request);
    for (const name of names) this.stale.delete(name);
    try {
      await this.#load(names, request.giveUp.signal);
      this.onProblem(null);
    } catch (error) {
      if (request.giveUp.signal.aborted) return;
      this.isWaiting = true;
      this.onProblem(error);
    } finally {
      this.requests.delete(request);
      for (const name of names) if (!this.held.has(name) && this.store.loaded.has(name)) this.letGo.add(name);
    }
    this.#next();
  }

  /** Read until the answer reaches the frames that follow. */
  async #load(/** @type {string[]} */ names, /** @type {AbortSignal} */ signal) {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const { smoothing } = this.view;
      const answer = await this.read(this.#url(names), { signal });
      if (signal.aborted || this.store.takeSeries(names, answer, smoothing)) break;
    }
    if (this.view.zoom && !signal.aborted) this.zoom(this.view.zoom, names);
  }

  #giveUp(/** @type {Request} */ request) {
    this.requests.delete(request);
    request.giveUp.abort();
  }

  /** Let the store forget names that nobody holds, but for the newest `kept`. */
  #forget(/** @type {number} */ kept) {
    const old = [...this.letGo].slice(0, Math.max(0, this.letGo.size - kept));
    if (!old.length) return;
    for (const name of old) this.letGo.delete(name);
    this.store.forget(old);
  }

  #url(/** @type {string[]} */ names) {
    const query = new URLSearchParams({
      metrics: names.join(","),
      points: String(names.some((name) => this.fine.has(name)) ? FINE_POINTS : POINTS),
    });
    const { text } = this.view.smoothing;
    if (text) query.set("smooth", text);
    return `${this.api}/series?${query}`;
  }
}

function batches(/** @type {string[]} */ names) {
  const parts = [];
  for (let i = 0; i < names.length; i += NAMES_PER_REQUEST) parts.push(names.slice(i, i + NAMES_PER_REQUEST));
  return parts;
}
