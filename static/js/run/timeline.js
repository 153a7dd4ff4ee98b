/** A timeline that is looked around in: wheel and keys zoom, drag pans, Shift and drag selects; it follows the run until moved. */

import { onTheme } from "../charts/colors.js";
import { Painter } from "./painter.js";

/** @import { Lanes } from "./lanes.js" */
/** @typedef {{ from: number, to: number }} Stretch of time, in seconds of the lanes */

const NARROWEST = 1e-4; // seconds

export class Timeline extends EventTarget {
  /** @type {Stretch | null} */
  window = null; // null: follow everything
  /** @type {Stretch | null} */
  selection = null;
  /** @type {(Stretch & { lanes: Lanes }) | null} */
  detail = null; // finer lanes of a window
  /** @type {number | null} */
  zero = null; // of the axis; null: the first span
  isLive = false;
  frame = 0; // asked for

  /** `lanes` is the store's Lanes. `look` goes to the Painter. `pick` returns the lanes to show. */
  constructor(canvas, { lanes, phases, look, pick = (all) => all, isInteractive = true }) {
    super();
    this.canvas = canvas;
    this.lanes = lanes;
    this.pick = pick;
    this.painter = new Painter(canvas, phases, look);
    this.canvas.timeline = this;
    new ResizeObserver(() => this.draw()).observe(canvas);
    onTheme(() => this.draw());
    if (isInteractive) this.#listen();
  }

  /** Return [from, to] of everything there is, in seconds. */
  get extent() {
    const { start, end } = this.lanes;
    return Number.isFinite(start) ? { from: start, to: Math.max(end, start + NARROWEST) } : { from: 0, to: 1 };
  }

  /** Return the lanes to draw: the finer ones of a window where they were read. */
  get source() {
    const { detail, window } = this;
    return detail && window && window.from >= detail.from && window.to <= detail.to ? detail.lanes : this.lanes;
  }

  /** Return what is on the screen. */
  get view() {
    if (this.window) return this.window;
    const { from, to } = this.extent;
    return { from, to: to + (to - from) * (this.isLive ? 0.05 : 0) };
  }

  /** Paint at the next animation frame, if the canvas can be seen. */
  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  drawNow() {
    if (!this.canvas.clientWidth || !this.canvas.isConnected) return;
    const lanes = this.pick(this.source.sorted);
    this.painter.resize();
    const { extent } = this;
    this.painter.paint({
      lanes,
      window: this.view,
      extent,
      zero: this.zero ?? this.lanes.start,
      selection: this.selection,
      now: this.isLive ? extent.to : null,
    });
  }

  /** Show [from, to] seconds; null follows everything. */
  setWindow(window) {
    if (window) {
      const { from, to } = this.extent;
      const room = Math.max((to - from) * 0.5, 1);
      const width = Math.min(Math.max(window.to - window.from, NARROWEST), to - from + 2 * room);
      const start = Math.min(Math.max(window.from, from - room), to + room - width);
      this.window = { from: start, to: start + width };
    } else {
      this.window = null;
    }
    this.draw();
    this.dispatchEvent(new Event("window"));
  }

  /** Zoom by `factor` around `time`. */
  zoom(factor, time) {
    const { from, to } = this.view;
    const center = time ?? (from + to) / 2;
    this.setWindow({ from: center - (center - from) * factor, to: center + (to - center) * factor });
  }

  /** Move by a share of what is on the screen. */
  pan(share) {
    const { from, to } = this.view;
    this.setWindow({ from: from + (to - from) * share, to: to + (to - from) * share });
  }

  select(selection) {
    this.selection = selection && selection.to - selection.from > NARROWEST ? selection : null;
    this.draw();
    this.dispatchEvent(new Event("selection"));
  }

  /** Zoom to the selection. */
  zoomToSelection() {
    if (this.selection) this.setWindow({ ...this.selection });
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
          this.pan((event.deltaX || event.deltaY) / 800);
        else this.zoom(Math.exp(event.deltaY * 0.0015), this.painter.time(event.offsetX, this.view));
      },
      { passive: false },
    );
    canvas.addEventListener("pointerdown", (event) => this.#grab(event));
    canvas.addEventListener("pointermove", (event) => this.#hover(event));
    canvas.addEventListener("pointerleave", () => this.dispatchEvent(new CustomEvent("hover", { detail: null })));
    canvas.addEventListener("dblclick", () => this.setWindow(null));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #grab(event) {
    if (event.button !== 0) return;
    const { canvas, painter } = this;
    const first = { ...this.view };
    const startX = event.offsetX;
    const isSelecting = event.shiftKey;
    canvas.setPointerCapture(event.pointerId);
    const move = (now) => {
      if (isSelecting) {
        const [a, b] = [painter.time(startX, first), painter.time(now.offsetX, first)];
        this.select({ from: Math.min(a, b), to: Math.max(a, b) });
      } else if (Math.abs(now.offsetX - startX) > 2) {
        const moved = painter.time(startX, first) - painter.time(now.offsetX, first);
        this.setWindow({ from: first.from + moved, to: first.to + moved });
      }
    };
    const stop = () => canvas.removeEventListener("pointermove", move);
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", stop, { once: true });
    canvas.addEventListener("pointercancel", stop, { once: true });
  }

  #hover(event) {
    const found = this.painter.hit(event.offsetX, event.offsetY, this.pick(this.source.sorted), this.view);
    const detail = found && {
      ...found,
      x: event.offsetX,
      y: event.offsetY,
      time: this.painter.time(event.offsetX, this.view),
    };
    this.dispatchEvent(new CustomEvent("hover", { detail }));
  }

  #key(event) {
    const actions = {
      ArrowLeft: () => this.pan(-0.15),
      ArrowRight: () => this.pan(0.15),
      "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7),
      "-": () => this.zoom(1.4),
      0: () => this.setWindow(null),
      Home: () => this.setWindow(null),
      z: () => this.zoomToSelection(),
      Escape: () => this.select(null),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }
}

/** The strip above a timeline: everything, with the window on it; drag moves the window, a drag on an edge changes it. */
export class Strip {
  frame = 0; // asked for

  constructor(canvas, timeline, phases, look) {
    this.canvas = canvas;
    this.timeline = timeline;
    this.painter = new Painter(canvas, phases, { laneHeight: 8, gap: 2, ...look });
    new ResizeObserver(() => this.draw()).observe(canvas);
    onTheme(() => this.draw());
    timeline.addEventListener("window", () => this.draw());
    canvas.addEventListener("pointerdown", (event) => this.#grab(event));
  }

  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (!this.canvas.clientWidth) return;
      const { timeline, painter } = this;
      painter.resize();
      const everything = timeline.extent;
      const lanes = timeline.pick(timeline.lanes.sorted);
      painter.paint({
        lanes,
        window: everything,
        extent: timeline.extent,
        selection: timeline.window,
        zero: timeline.lanes.start,
      });
    });
  }

  #grab(event) {
    const { canvas, painter, timeline } = this;
    const everything = timeline.extent;
    const at = painter.time(event.offsetX, everything);
    const start = timeline.window ?? everything;
    const isInside = timeline.window && at > start.from && at < start.to;
    const width = timeline.window ? start.to - start.from : 0;
    canvas.setPointerCapture(event.pointerId);
    const move = (now) => {
      const time = painter.time(now.offsetX, everything);
      if (isInside) timeline.setWindow({ from: start.from + time - at, to: start.to + time - at });
      else timeline.setWindow({ from: Math.min(at, time), to: Math.max(at, time) });
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener(
      "pointerup",
      (now) => {
        canvas.removeEventListener("pointermove", move);
        if (!isInside && Math.abs(now.offsetX - event.offsetX) < 3 && width)
          timeline.setWindow({ from: at - width / 2, to: at + width / 2 });
      },
      { once: true },
    );
  }
}
