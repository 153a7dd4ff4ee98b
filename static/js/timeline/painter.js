/** A canvas with time from left to right, right of the lanes' names. What is painted on it, and how, is its children's. */

import { brushOf, color, hatch, onTheme } from "../charts/colors.js";
import { niceStep } from "./clock.js";
import { ticks } from "./window.js";

/** @import { Stretch } from "./window.js" */

export class Painter {
  width = 0; // of the canvas, in CSS pixels, like
  height = 0;
  ratio = 0; // of the screen's pixels to them
  /** @type {CanvasPattern | null} */
  #waiting = null;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {number} label pixels for the names of lanes
   * @param {number} second how many units of time it has
   * @param {CanvasRenderingContext2DSettings} [settings]
   */
  constructor(canvas, label, second, settings) {
    this.canvas = canvas;
    this.label = label;
    this.second = second;
    this.context = brushOf(canvas, settings);
    onTheme(() => {
      this.#waiting = null;
    });
  }

  /** The fill of time in which nothing is known to happen. */
  get waiting() {
    this.#waiting ??= hatch(this.context);
    return this.#waiting;
  }

  /** Fit the canvas to its box and the screen's pixels; returns false where it does already. */
  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    if (this.width === clientWidth && this.height === clientHeight && this.ratio === ratio) return false;
    Object.assign(this, { width: clientWidth, height: clientHeight, ratio });
    this.#waiting = null;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return true;
  }

  /** Return the pixel of a moment. */
  x(/** @type {number} */ time, /** @type {Stretch} */ { from, to }) {
    return this.label + ((time - from) / (to - from)) * (this.width - this.label);
  }

  /** Return the moment at a pixel. */
  time(/** @type {number} */ x, /** @type {Stretch} */ { from, to }) {
    return from + ((x - this.label) / (this.width - this.label)) * (to - from);
  }

  /** Return how far beside a span the mouse still hits it: two pixels, as time. */
  slack(/** @type {Stretch} */ { from, to }) {
    return (2 * (to - from)) / (this.width - this.label);
  }

  /**
   * Return { step, at } of an axis: moments counted from `zero`, about `apart` pixels from each other.
   *
   * @param {Stretch} view
   * @param {number} zero
   * @param {number} apart
   */
  axis(view, zero, apart) {
    const step = niceStep((view.to - view.from) / Math.max((this.width - this.label) / apart, 1), this.second);
    return { step, at: ticks(view, zero, step) };
  }

  /**
   * Frame a selection from `top` to `bottom`; its sides begin `rise` pixels above.
   *
   * @param {Stretch} selection
   * @param {Stretch} view
   * @param {{ top: number, bottom: number, alpha: number, rise?: number }} look
   */
  frame(selection, view, { top, bottom, alpha, rise = 0 }) {
    const { context } = this;
    const left = Math.max(this.x(selection.from, view), this.label);
    const right = Math.min(this.x(selection.to, view), this.width);
    if (right <= left) return;
    context.globalAlpha = alpha;
    context.fillStyle = color("--accent-text");
    context.fillRect(left, top, right - left, bottom - top);
    context.globalAlpha = 1;
    context.strokeStyle = color("--accent-text");
    context.lineWidth = 1;
    context.strokeRect(left + 0.5, top - rise + 0.5, right - left - 1, bottom - top + rise - 1);
  }
}
