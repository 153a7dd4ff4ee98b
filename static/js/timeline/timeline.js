/**
 * A timeline that is looked around in: wheel and keys zoom, drag pans, Shift and drag selects. What is drawn, and what a click or the mouse
 * finds there, is its children's. It tells "window", "selection" and "hover".
 */

import { onTheme } from "../charts/colors.js";
import { between, fitted, moved, zoomed } from "./window.js";

/** @import { Painter } from "./painter.js" */
/** @import { Limits, Stretch } from "./window.js" */

const STILL = 3; // pixels that a click may move

/**
 * @template {Painter} P
 * @template {HTMLElement | null} [S=null]
 */
export class Timeline extends EventTarget {
  frame = 0; // asked for
  /** @type {Stretch | null} */
  window = null; // null: everything
  /** @type {Stretch | null} */
  selection = null;
  /** @type {number | null} */
  mouseX = null; // where the mouse is on the canvas; null: elsewhere

  /**
   * @param {P} painter
   * @param {Limits} limits
   * @param {S} scroll the box in which the lanes scroll up and down, null where they do not
   */
  constructor(painter, limits, scroll) {
    super();
    this.canvas = painter.canvas;
    this.painter = painter;
    this.limits = limits;
    this.scroll = scroll;
    new ResizeObserver(() => this.draw()).observe(scroll ?? this.canvas);
    onTheme(() => this.draw());
  }

  /** From when to when there is something. */
  get extent() {
    return { from: 0, to: this.painter.second };
  }

  /** What is on the screen while no window is set. */
  get everything() {
    return this.extent;
  }

  /** Return what is on the screen. */
  get view() {
    return this.window ?? this.everything;
  }

  /** Paint at the next animation frame. */
  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  drawNow() {}

  /** Show [from, to]; null shows everything. */
  setWindow(/** @type {Stretch | null} */ window) {
    this.window = window && fitted(window, this.extent, this.limits);
    this.draw();
    this.dispatchEvent(new Event("window"));
  }

  /** Zoom by `factor` around `time`, or else around the middle. */
  zoom(/** @type {number} */ factor, /** @type {number | undefined} */ time = undefined) {
    this.setWindow(zoomed(this.view, factor, time));
  }

  /** Move by a share of what is on the screen. */
  pan(/** @type {number} */ share) {
    const { from, to } = this.view;
    this.setWindow(moved({ from, to }, (to - from) * share));
  }

  select(/** @type {Stretch | null} */ selection) {
    this.selection = selection && selection.to - selection.from > this.limits.selection ? selection : null;
    this.draw();
    this.dispatchEvent(new Event("selection"));
  }

  /** Zoom to the selection. */
  zoomToSelection() {
    if (this.selection) this.setWindow({ ...this.selection });
  }

  /**
   * What the buttons of a timeline do, by name.
   *
   * @type {Record<string, () => void>}
   */
  buttons = {
    in: () => this.zoom(0.6),
    out: () => this.zoom(1.6),
    reset: () => this.setWindow(null),
    selection: () => this.zoomToSelection(),
  };

  /**
   * What keys do while the canvas has the focus.
   *
   * @returns {Record<string, () => void>}
   */
  get keys() {
    return {
      ArrowLeft: () => this.pan(-0.15),
      ArrowRight: () => this.pan(0.15),
      a: () => this.pan(-0.15),
      d: () => this.pan(0.15),
      w: () => this.zoom(0.7, this.mouseTime),
      s: () => this.zoom(1.4, this.mouseTime),
      "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7),
      "-": () => this.zoom(1.4),
      0: () => this.setWindow(null),
      Home: () => this.setWindow(null),
      z: () => this.zoomToSelection(),
      Escape: () => this.select(null),
    };
  }

  /** Follow mouse and keys. */
  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.#turn(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.#grab(event));
    canvas.addEventListener("pointermove", (event) => {
      this.mouseX = event.offsetX;
      this.point(event);
    });
    canvas.addEventListener("pointerleave", () => {
      this.mouseX = null;
      this.leave();
    });
    canvas.addEventListener("dblclick", (event) => {
      if (!this.isOnNames(event)) this.setWindow(null);
    });
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /** The moment under the mouse, undefined while it is elsewhere: what keys zoom around. */
  get mouseTime() {
    const { mouseX, painter } = this;
    return mouseX === null || mouseX < painter.label ? undefined : painter.time(mouseX, this.view);
  }

  /** Return true where the mouse means the names of lanes, not time: there neither wheel nor double click zooms. */
  isOnNames(/** @type {{ offsetX: number }} */ { offsetX }) {
    return this.scroll !== null && offsetX < this.painter.label;
  }

  /** The mouse was pressed and let go in one place. */
  click(/** @type {MouseEvent} */ _event) {}

  /** The mouse moves over the canvas. */
  point(/** @type {PointerEvent} */ _event) {}

  /** The mouse has left the canvas. */
  leave() {
    this.dispatchEvent(new CustomEvent("hover", { detail: null }));
  }

  #turn(/** @type {WheelEvent} */ event) {
    if (this.isOnNames(event) && !event.ctrlKey) return;
    event.preventDefault();
    const { deltaX, deltaY } = event;
    if (event.shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) this.pan((deltaX || deltaY) / 800);
    else this.zoom(Math.exp(deltaY * 0.0015), this.painter.time(event.offsetX, this.view));
  }

  #grab(/** @type {PointerEvent} */ event) {
    if (event.button !== 0) return;
    const { canvas, painter, scroll } = this;
    const first = { ...this.view };
    const { offsetX: startX, offsetY: startY, shiftKey: isSelecting } = event;
    const startTop = scroll?.scrollTop ?? 0;
    let hasMoved = false;
    canvas.setPointerCapture(event.pointerId);
    const move = (/** @type {PointerEvent} */ { offsetX, offsetY }) => {
      hasMoved ||= Math.abs(offsetX - startX) + Math.abs(offsetY - startY) > STILL;
      if (!hasMoved) return;
      const begin = painter.time(startX, first);
      if (isSelecting) {
        this.select(between(begin, painter.time(Math.max(offsetX, painter.label), first)));
        return;
      }
      const by = begin - painter.time(offsetX, first);
      if (by) this.setWindow(moved(first, by));
      if (scroll) scroll.scrollTop = startTop + startY - offsetY;
    };
    const stop = () => {
      canvas.removeEventListener("pointermove", move);
      canvas.removeEventListener("pointerup", stop);
      canvas.removeEventListener("pointercancel", stop);
      if (!hasMoved) this.click(event);
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", stop);
    canvas.addEventListener("pointercancel", stop);
  }

  #key(/** @type {KeyboardEvent} */ event) {
    const act = this.keys[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}

/**
 * Let people move the window of a timeline on a canvas that shows all of it: a drag moves the window or draws another one, a click brings it there.
 *
 * @param {Painter} painter of the canvas
 * @param {Timeline<Painter, HTMLElement | null>} timeline
 */
export function dragWindow(painter, timeline) {
  const { canvas } = painter;
  canvas.addEventListener("pointerdown", (event) => {
    const { extent, window: start } = timeline;
    const timeOf = (/** @type {PointerEvent} */ { offsetX }) => painter.time(offsetX, extent);
    const isClick = (/** @type {PointerEvent} */ { offsetX }) => Math.abs(offsetX - event.offsetX) < STILL;
    const at = timeOf(event);
    const grabbed = start && at > start.from && at < start.to ? start : null;
    canvas.setPointerCapture(event.pointerId);
    const move = (/** @type {PointerEvent} */ now) => {
      if (grabbed) timeline.setWindow(moved(grabbed, timeOf(now) - at));
      else if (!isClick(now)) timeline.setWindow(between(at, timeOf(now)));
    };
    const stop = (/** @type {PointerEvent} */ now) => {
      canvas.removeEventListener("pointermove", move);
      if (start && !grabbed && isClick(now)) timeline.setWindow(moved(start, at - (start.from + start.to) / 2));
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", stop, { once: true });
  });
}
