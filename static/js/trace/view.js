/** What of a trace is on the screen, and how people move in it: wheel and keys zoom, drag pans, Shift and drag selects, click chooses. */

import { onTheme } from "../charts/colors.js";
import { AXIS, Painter } from "./painter.js";

/** @import { Stretch } from "./clock.js" */
/** @import { Layout } from "./layout.js" */
/** @import { EventHit } from "./painter.js" */
/** @import { Palette } from "./palette.js" */
/** @import { Loader } from "./tiles.js" */
/**
 * @typedef {object} TraceEvent an event of the timeline
 * @property {string} laneKey
 * @property {number} depth
 * @property {number} begin
 * @property {number} end
 * @property {number | null} layer
 * @property {number} id in its layer; below 0 where it has none
 * @property {string} name
 * @property {number} category
 * @property {{ phase: string, step: number, name: string } | null} about of a phase
 * @property {string} lane
 * @property {string} group
 */

const NARROWEST = 100; // ns
const REST_MS = 60; // without a move, before what is missing is fetched

export class View extends EventTarget {
  frame = 0; // asked for
  resting = 0;
  /** @type {Stretch | null} */
  window = null; // null: everything
  extent = { from: 0, to: 1e9 };
  /** @type {Stretch | null} */
  selection = null;
  /** @type {TraceEvent | null} */
  chosen = null;
  /** @type {TraceEvent | null} */
  hover = null;
  /** @type {{ number: number, begin: number, end: number }[]} */
  steps = [];

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
    super();
    this.canvas = canvas;
    this.scroll = scroll;
    this.space = space;
    this.layout = layout;
    this.loader = loader;
    this.painter = new Painter(canvas, palette);
    this.painter.onUse = (tile) => loader.touch(tile);
    this.isByStep = false;
    this.zero = 0;
    this.movedAt = 0;
    this.frames = 0;
    new ResizeObserver(() => this.draw()).observe(scroll);
    onTheme(() => this.draw());
    this.#listen();
  }

  /** Return [from, to] on the screen, in ns after the trace's origin. */
  get view() {
    if (this.window) return this.window;
    const { from, to } = this.extent;
    const room = (to - from) * 0.005;
    return { from: from - room, to: to + room };
  }

  get top() {
    return this.scroll.scrollTop;
  }

  /** Paint at the next animation frame. */
  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const height = this.scroll.clientHeight;
    if (!height || !this.canvas.isConnected) return;
    this.space.style.height = `${this.layout.height + AXIS}px`;
    this.canvas.style.height = `${height}px`;
    this.painter.resize();
    const { layout, view, top, selection, chosen, hover, steps, isByStep, zero } = this;
    const missing = this.painter.paint({ layout, view, top, selection, chosen, hover, steps, isByStep, zero });
    this.frames += 1;
    this.#fetch(missing);
    this.dispatchEvent(new Event("drawn"));
  }

  /** Fetch what is missing: at once where nothing stands in its place, else when the view rests. */
  #fetch(missing) {
    const isResting = performance.now() - this.movedAt > REST_MS;
    this.loader.want(isResting ? missing : missing.filter(({ hasOther }) => !hasOther));
    clearTimeout(this.resting);
    if (!isResting) this.resting = setTimeout(() => this.draw(), REST_MS + 5);
  }

  /** Return true once all that belongs on the screen is there. */
  get isWhole() {
    return this.loader.isIdle && !this.frame && performance.now() - this.movedAt > REST_MS;
  }

  /** Take from when to when there is something; the first call sets what is counted from. */
  setExtent(extent) {
    const isSame = extent.from === this.extent.from && extent.to === this.extent.to;
    this.extent = extent;
    if (!isSame) this.draw();
  }

  /** Show [from, to]; null shows everything. */
  setWindow(window) {
    if (window) {
      const { from, to } = this.extent;
      const room = Math.max((to - from) * 0.5, 1000);
      const width = Math.min(Math.max(window.to - window.from, NARROWEST), to - from + 2 * room);
      const center = (window.from + window.to) / 2;
      const start = Math.min(Math.max(center - width / 2, from - room), to + room - width);
      this.window = { from: start, to: start + width };
    } else {
      this.window = null;
    }
    this.movedAt = performance.now();
    this.draw();
    this.dispatchEvent(new Event("window"));
  }

  zoom(factor, time) {
    const { from, to } = this.view;
    const center = time ?? (from + to) / 2;
    this.setWindow({ from: center - (center - from) * factor, to: center + (to - center) * factor });
  }

  pan(share) {
    const { from, to } = this.view;
    this.setWindow({ from: from + (to - from) * share, to: to + (to - from) * share });
  }

  select(selection) {
    const whole = selection && { from: Math.round(selection.from), to: Math.round(selection.to) }; // as the address keeps it
    this.selection = whole && whole.to - whole.from >= 1 ? whole : null;
    this.draw();
    this.dispatchEvent(new Event("selection"));
  }

  /** Zoom to the selection, or else to the chosen event. */
  zoomToSelection() {
    if (this.selection) this.setWindow({ ...this.selection });
    else if (this.chosen) this.show(this.chosen, 0.5);
  }

  /** Choose an event { laneKey, depth, begin, end, layer, id, ... }; null chooses none. */
  choose(event) {
    this.chosen = event;
    this.draw();
    this.dispatchEvent(new Event("chosen"));
  }

  /** Bring an event into sight; `share` of the width is what it takes at least, if it is given. */
  show({ laneKey, depth, begin, end }, share = 0) {
    const item = this.layout.reveal(laneKey, depth);
    const { from, to } = this.view;
    const width = share ? Math.max((end - begin) / share, NARROWEST * 2) : to - from;
    const isInside = begin >= from && end <= to && (end - begin) * 400 > to - from;
    if (share || !isInside) {
      const wanted = share ? width : Math.min(width, Math.max((end - begin) * 40, NARROWEST * 4));
      this.setWindow({ from: (begin + end) / 2 - wanted / 2, to: (begin + end) / 2 + wanted / 2 });
    }
    if (item) {
      const y = item.y + depth * (item.rowHeight + 1);
      const high = this.scroll.clientHeight - AXIS;
      this.space.style.height = `${this.layout.height + AXIS}px`;
      if (y < this.top || y + item.rowHeight > this.top + high) this.scroll.scrollTop = Math.max(0, y - high / 3);
    }
    this.draw();
  }

  #listen() {
    const { canvas, scroll } = this;
    canvas.addEventListener(
      "wheel",
      (event) => {
        const isBeside = event.offsetX < this.painter.label; // over the names the wheel scrolls the lanes
        if (isBeside && !event.ctrlKey) return;
        event.preventDefault();
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
          this.pan((event.deltaX || event.deltaY) / 800);
        else this.zoom(Math.exp(event.deltaY * 0.0015), this.painter.time(event.offsetX, this.view));
      },
      { passive: false },
    );
    scroll.addEventListener("scroll", () => this.draw());
    canvas.addEventListener("pointerdown", (event) => this.#grab(event));
    canvas.addEventListener("pointermove", (event) => this.#hover(event));
    canvas.addEventListener("pointerleave", () => this.#leave());
    canvas.addEventListener("dblclick", (event) => {
      if (event.offsetX > this.painter.label) this.setWindow(null);
    });
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #grab(event) {
    if (event.button !== 0) return;
    const { canvas, painter, scroll } = this;
    const first = { ...this.view };
    const { offsetX: startX, offsetY: startY } = event;
    const startTop = this.top;
    const isSelecting = event.shiftKey;
    let hasMoved = false;
    canvas.setPointerCapture(event.pointerId);
    const move = (now) => {
      if (Math.abs(now.offsetX - startX) + Math.abs(now.offsetY - startY) > 3) hasMoved = true;
      if (!hasMoved) return;
      if (isSelecting) {
        const [a, b] = [startX, Math.max(now.offsetX, painter.label)].map((x) => painter.time(x, first));
        this.select({ from: Math.min(a, b), to: Math.max(a, b) });
      } else {
        const moved = painter.time(startX, first) - painter.time(now.offsetX, first);
        if (moved) this.setWindow({ from: first.from + moved, to: first.to + moved });
        scroll.scrollTop = startTop + startY - now.offsetY;
      }
    };
    const stop = () => {
      canvas.removeEventListener("pointermove", move);
      canvas.removeEventListener("pointerup", stop);
      canvas.removeEventListener("pointercancel", stop);
      if (!hasMoved) this.#click(event);
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", stop);
    canvas.addEventListener("pointercancel", stop);
  }

  #click({ offsetX, offsetY }) {
    const found = this.painter.hit(offsetX, offsetY, this);
    if (!found) return;
    if (found.item.type === "group" || offsetX < this.painter.label) {
      this.layout.toggle(found.item);
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

  #hover(event) {
    if (event.buttons) return;
    const found = this.painter.hit(event.offsetX, event.offsetY, this);
    const isOver = Boolean(found?.row || found?.column);
    this.canvas.dataset.over = !found ? "" : isOver ? "event" : found.laneKey ? "lane" : "name";
    const hover = found?.row ? eventOf(found) : null;
    if (hover?.begin !== this.hover?.begin || hover?.laneKey !== this.hover?.laneKey) {
      this.hover = hover;
      this.draw();
    }
    const detail = isOver ? { ...found, event: hover, x: event.offsetX, y: event.offsetY } : null;
    this.dispatchEvent(new CustomEvent("hover", { detail }));
  }

  #leave() {
    if (this.hover) this.draw();
    this.hover = null;
    this.dispatchEvent(new CustomEvent("hover", { detail: null }));
  }

  #key(event) {
    const { scroll } = this;
    const actions = {
      ArrowLeft: () => this.pan(-0.15),
      ArrowRight: () => this.pan(0.15),
      ArrowUp: () => {
        scroll.scrollTop -= 60;
      },
      ArrowDown: () => {
        scroll.scrollTop += 60;
      },
      "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7),
      "-": () => this.zoom(1.4),
      0: () => this.setWindow(null),
      Home: () => this.setWindow(null),
      z: () => this.zoomToSelection(),
      Escape: () => {
        this.select(null);
        this.choose(null);
      },
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
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
    category: row.category(i),
    about: row.about?.[i] ?? null,
    lane: item.lane.title,
    group: item.group.title,
  };
}
