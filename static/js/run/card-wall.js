/**
 * Sections of cards of which only those near the screen exist: a section keeps the height of all its cards, and the cards
 * stand in it by their number. Scrolling makes what comes near and releases what has gone.
 */

import { copyOf, find } from "../dom.js";
import { write } from "../format.js";
import { cardsBetween, heightOf, placeOf } from "./wall-layout.js";

const NEAR = 400; // pixels above and below the screen in which cards exist

/** @import { Metric, Section } from "./metric-groups.js" */
/** @typedef {{ node: HTMLElement, release: () => void, at: string, section: string }} Card */
/** @typedef {{ node: HTMLElement, grid: HTMLElement, metrics: Metric[], isFolded: boolean, columns: number, top: number }} Part */

export class CardWall {
  /**
   * @param {HTMLElement} place
   * @param {object} calls
   * @param {(metric: Metric) => { node: HTMLElement, release: () => void }} calls.make build a card
   * @param {(names: string[]) => void} calls.onNear these have cards now, in the order in which they stand
   * @param {(key: string) => void} calls.onFold somebody folds a section, or unfolds it
   * @param {(key: string) => void} calls.onPin
   */
  constructor(place, calls) {
    this.place = place;
    this.calls = calls;
    /** @type {Map<string, Part>} */
    this.parts = new Map();
    /** @type {Map<string, Card>} by the metric's name */
    this.cards = new Map();
    this.order = "";
    this.near = "";
    this.columns = 4;
    this.row = 200;
    this.waiting = 0;
    addEventListener("scroll", () => this.soon(), { passive: true });
    new ResizeObserver(() => this.soon(true)).observe(place);
  }

  /**
   * Show these sections; `isFolded` says of a key whether its cards are hidden, `isPinned` whether all of it is pinned.
   *
   * @param {Section[]} sections
   * @param {{ isFolded: (key: string) => boolean, isPinned: (key: string) => boolean }} state
   */
  show(sections, { isFolded, isPinned }) {
    const before = this.parts;
    this.parts = new Map();
    for (const { key, title, metrics } of sections) {
      const part = before.get(key) ?? this.#section(key, title);
      part.metrics = metrics;
      part.isFolded = isFolded(key);
      write(find('[data-part="count"]', part.node), String(metrics.length));
      find("button[data-fold]", part.node).setAttribute("aria-expanded", String(!part.isFolded));
      find("button[data-pin]", part.node).setAttribute("aria-pressed", String(isPinned(key)));
      part.grid.hidden = part.isFolded;
      this.parts.set(key, part);
    }
    const order = [...this.parts.keys()].join("\n");
    if (order !== this.order) this.place.replaceChildren(...[...this.parts.values()].map((part) => part.node));
    this.order = order;
    this.#measure();
    this.update();
  }

  /** Return the names of all metrics in the order in which they stand, folded sections left out. */
  get names() {
    return [...this.parts.values()].flatMap((part) => (part.isFolded ? [] : part.metrics.map(({ name }) => name)));
  }

  /** Look again at what is near with the next frame; `isResized`: columns and heights may be others. */
  soon(isResized = false) {
    this.isResized ||= isResized;
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = 0;
      if (!this.place.clientWidth) return; // the tab is hidden
      if (this.isResized) this.#measure();
      this.isResized = false;
      this.update();
    });
  }

  /** Make what is near the screen, release what is not. */
  update() {
    const above = this.place.getBoundingClientRect().top;
    /** @type {Map<string, { part: Part, key: string, at: number, metric: Metric }>} */
    const wanted = new Map();
    if (this.place.clientWidth) {
      for (const [key, part] of this.parts) {
        if (part.isFolded) continue;
        const block = { top: above + part.top, count: part.metrics.length, columns: part.columns };
        const [first, end] = cardsBetween(block, -NEAR, innerHeight + NEAR, this.row);
        for (let at = first; at < end; at += 1)
          wanted.set(part.metrics[at].name, { part, key, at, metric: part.metrics[at] });
      }
    }
    for (const [name, card] of this.cards) {
      if (wanted.has(name)) continue;
      card.release();
      card.node.remove();
      this.cards.delete(name);
    }
    for (const [name, { part, key, at, metric }] of wanted) {
      const known = this.cards.get(name);
      const card = known ?? { ...this.calls.make(metric), at: "", section: "" };
      this.cards.set(name, card);
      this.#place(card, part, at);
      if (card.section !== key) part.grid.append(card.node);
      card.section = key;
    }
    const names = [...wanted.keys()];
    const near = names.join("\n");
    if (near !== this.near) this.calls.onNear(names);
    this.near = near;
  }

  /** Bring the card of a metric to the middle of the screen, and return it; null where it is not shown. */
  reveal(/** @type {string} */ name) {
    for (const part of this.parts.values()) {
      const at = part.isFolded ? -1 : part.metrics.findIndex((metric) => metric.name === name);
      if (at < 0) continue;
      const top = this.place.getBoundingClientRect().top + part.top + placeOf(at, part.columns).row * this.row;
      const isSeen = top > 100 && top + this.row < innerHeight;
      if (!isSeen) scrollBy({ top: top - (innerHeight - this.row) / 2, behavior: "instant" });
      this.update();
      return this.cards.get(name)?.node ?? null;
    }
    return null;
  }

  #place(/** @type {Card} */ card, /** @type {Part} */ part, /** @type {number} */ at) {
    const where = `${at}/${part.columns}/${this.row}`;
    if (card.at === where) return;
    card.at = where;
    const { row, column } = placeOf(at, part.columns);
    const { style } = card.node;
    style.top = `${row * this.row}px`;
    style.left = `calc(${column} * (100% + var(--gap)) / ${part.columns})`;
    style.width = `calc((100% - ${part.columns - 1} * var(--gap)) / ${part.columns})`;
  }

  /** Read how many columns there are, give every section its height, and read where each begins. */
  #measure() {
    const style = getComputedStyle(this.place);
    const number = (/** @type {string} */ name) => Number.parseFloat(style.getPropertyValue(name));
    this.columns = number("--columns");
    this.row = number("--card-height") + number("--gap");
    for (const part of this.parts.values()) {
      const count = part.metrics.length;
      part.columns = Math.max(1, Math.min(count, this.columns));
      part.node.style.gridColumn = part.isFolded ? "1 / -1" : `span ${part.columns}`;
      part.grid.style.height = `${heightOf({ count, columns: part.columns }, this.row)}px`;
    }
    const above = this.place.getBoundingClientRect().top;
    for (const part of this.parts.values()) part.top = part.grid.getBoundingClientRect().top - above;
  }

  /** @returns {Part} */
  #section(/** @type {string} */ key, /** @type {string} */ title) {
    const node = copyOf('template[data-template="chart-section"]');
    node.setAttribute("aria-label", title);
    find('[data-part="title"]', node).textContent = title;
    find("button[data-fold]", node).addEventListener("click", () => this.calls.onFold(key));
    const pin = find("button[data-pin]", node);
    pin.hidden = !key.endsWith("/");
    pin.addEventListener("click", () => this.calls.onPin(key));
    const grid = find('[data-part="cards"]', node);
    return { node, grid, metrics: [], isFolded: false, columns: 1, top: 0 };
  }
}
