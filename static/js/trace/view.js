/** The timeline of a trace: a click chooses an event, or folds a lane; what is missing is fetched once the view rests. */

import { rowTop } from "../timeline/layout.js";
import { Timeline } from "../timeline/timeline.js";
import { AXIS, TracePainter } from "./painter.js";

/** @import { Stretch } from "../timeline/window.js" */
/** @import { Arrow } from "./arrows.js" */
/** @import { Step } from "./facts.js" */
/** @import { Layout } from "./layout.js" */
/** @import { EventHit } from "./painter.js" */
/** @import { Palette } from "./palette.js" */
/** @import { Loader, Wanted } from "./tiles.js" */
/**
 * @typedef {object} TraceEvent an event of the timeline
 * @property {string} laneKey
 * @property {number} depth
 * @property {number} begin
 * @property {number} end
 * @property {number | null} layer
 * @property {number} id in its layer; below 0 where it has none
 * @property {string} name
 * @property {string} [label] a shorter word for it
 * @property {number} category
 * @property {{ phase: string, step: number, name: string } | null} about of a phase
 * @property {string} lane
 * @property {string} group
 */

const NARROWEST = 100; // ns
const LIMITS = { narrowest: NARROWEST, room: 1000, selection: 0 };
const REST_MS = 60; // without a move, before what is missing is fetched

/** @extends {Timeline<TracePainter, HTMLElement>} */
export class View extends Timeline {
  #extent = { from: 0, to: 1e9 };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  resting;
  /** @type {TraceEvent | null} */
  chosen = null;
  /** @type {TraceEvent | null} */
  hover = null;
  /** @type {Arrow[]} */
  arrows = []; // of the chosen event
  pointed = ""; // the key of the lane whose name is under the mouse
  /** @type {Step[]} */
  steps = [];
  isByStep = false;
  zero = 0;
  movedAt = 0;
  frames = 0; // painted

  /**
   * @param {object} parts
   * @param {HTMLCanvasElement} parts.canvas
   * @param {HTMLElement} parts.scroll
   * @param {HTMLElement} parts.space
   * @param {Palette} parts.palette
   * @param {Layout} parts.layout
   * @param {Loader} parts.loader
   */
  constructor({ canvas, scroll, space, palette, layout, loader }) {
    super(new TracePainter(canvas, palette, (tile) => loader.touch(tile)), LIMITS, scroll);
    this.space = space;
    this.layout = layout;
    this.loader = loader;
    scroll.addEventListener("scroll", () => this.draw());
    this.listen();
  }

  get extent() {
    return this.#extent;
  }

  /** Take from when to when there is something. */
  setExtent(/** @type {Stretch} */ extent) {
    const isSame = extent.from === this.extent.from && extent.to === this.extent.to;
    this.#extent = extent;
    if (!isSame) this.draw();
  }

  get everything() {
    const { from, to } = this.extent;
    const room = (to - from) * 0.005;
    return { from: from - room, to: to + room };
  }

  get top() {
    return this.scroll.scrollTop;
  }

  drawNow() {
    const height = this.scroll.clientHeight;
    if (!height || !this.canvas.isConnected) return;
    this.space.style.height = `${this.layout.height + AXIS}px`;
    this.canvas.style.height = `${height}px`;
    this.painter.resize();
    const missing = this.painter.paint(this);
    this.frames += 1;
    this.#fetch(missing);
    this.dispatchEvent(new Event("drawn"));
  }

  /** Fetch what is missing: at once where nothing stands in its place, else when the view rests. */
  #fetch(/** @type {Wanted[]} */ missing) {
    const isResting = performance.now() - this.movedAt > REST_MS;
    this.loader.want(isResting ? missing : missing.filter(({ hasOther }) => !hasOther));
    clearTimeout(this.resting);
    if (!isResting) this.resting = setTimeout(() => this.draw(), REST_MS + 5);
  }

  /** Return true once all that belongs on the screen is there. */
  get isWhole() {
    return this.loader.isIdle && !this.frame && performance.now() - this.movedAt > REST_MS;
  }

  setWindow(/** @type {Stretch | null} */ window) {
    this.movedAt = performance.now();
    super.setWindow(window);
  }

  /** Select whole ns, as the address keeps them. */
  select(/** @type {Stretch | null} */ selection) {
    super.select(selection && { from: Math.round(selection.from), to: Math.round(selection.to) });
  }

  /** Zoom to the selection, or else to the chosen event. */
  zoomToSelection() {
    if (!this.selection && this.chosen) this.show(this.chosen, 0.5);
    else super.zoomToSelection();
  }

  /** Choose an event; null chooses none. */
  choose(/** @type {TraceEvent | null} */ event) {
    this.chosen = event;
    this.draw();
    this.dispatchEvent(new Event("chosen"));
  }

  /** Bring an event into sight; `share` of the width is what it takes at least, if it is given. */
  show(/** @type {TraceEvent} */ { laneKey, depth, begin, end }, share = 0) {
    const item = this.layout.reveal(laneKey, depth);
    const { from, to } = this.view;
    const width = share ? Math.max((end - begin) / share, NARROWEST * 2) : to - from;
    const isInside = begin >= from && end <= to && (end - begin) * 400 > to - from;
    if (share || !isInside) {
      const wanted = share ? width : Math.min(width, Math.max((end - begin) * 40, NARROWEST * 4));
      this.setWindow({ from: (begin + end) / 2 - wanted / 2, to: (begin + end) / 2 + wanted / 2 });
    }
    if (item) {
      const y = rowTop(item, depth);
      const high = this.scroll.clientHeight - AXIS;
      this.space.style.height = `${this.layout.height + AXIS}px`;
      if (y < this.top || y + item.rowHeight > this.top + high) this.scroll.scrollTop = Math.max(0, y - high / 3);
    }
    this.draw();
  }

  click(/** @type {MouseEvent} */ event) {
    const found = this.painter.hit(event.offsetX, event.offsetY, this);
    if (!found) return;
    if (found.part || this.isOnNames(event)) {
      const { item } = found;
      if (found.part === "handle" && item.lane) this.layout.toggleRows(item.lane.key);
      else if (found.part === "pin" && item.lane) this.layout.pin(item.lane.key);
      else if (item.type === "group" || this.isOnNames(event)) this.layout.toggle(item);
      else return this.choose(null);
      this.draw();
      this.dispatchEvent(new Event("folds"));
    } else if (found.row) {
      this.choose(eventOf(found));
    } else if (found.column) {
      this.zoom(0.2, found.time); // too many to be told apart: look closer
    } else {
      this.choose(null);
    }
  }

  point(/** @type {PointerEvent} */ { buttons, offsetX: x, offsetY: y }) {
    if (buttons) return;
    const found = this.painter.hit(x, y, this);
    const isOver = Boolean(found?.row || found?.column);
    this.canvas.dataset.over = !found ? "" : isOver ? "event" : found.laneKey ? "lane" : "name";
    this.#point(found && this.isOnNames({ offsetX: x }) ? (found.item.lane?.key ?? "") : "");
    const event = found?.row ? eventOf(found) : null;
    this.#mark(event);
    const detail = isOver ? { ...found, event, x, y } : null;
    this.dispatchEvent(new CustomEvent("hover", { detail }));
  }

  /** Offer to pin the lane whose name is under the mouse. */
  #point(/** @type {string} */ key) {
    if (key === this.pointed) return;
    this.pointed = key;
    this.draw();
  }

  leave() {
    this.#mark(null);
    this.#point("");
    super.leave();
  }

  /** Outline the event under the mouse. */
  #mark(/** @type {TraceEvent | null} */ hover) {
    if (hover?.begin === this.hover?.begin && hover?.laneKey === this.hover?.laneKey) return;
    this.hover = hover;
    this.draw();
  }

  get keys() {
    return {
      ...super.keys,
      ArrowUp: () => this.scroll.scrollBy(0, -60),
      ArrowDown: () => this.scroll.scrollBy(0, 60),
      Escape: () => {
        this.select(null);
        this.choose(null);
      },
    };
  }
}

/**
 * Return the event of a hit.
 *
 * @param {EventHit} hit
 * @returns {TraceEvent}
 */
function eventOf({ laneKey, depth, row, i, item }) {
  return {
    laneKey,
    depth,
    begin: row.start[i],
    end: row.end[i],
    layer: item.lane.layer ?? null,
    id: row.id[i],
    name: row.text(i),
    label: row.label(i),
    category: row.category(i),
    about: row.about?.[i] ?? null,
    lane: item.lane.title,
    group: item.group.title,
  };
}
