/** The timeline of a run's phases; it follows the run until people move it. */

import { dragWindow, Timeline } from "../timeline/timeline.js";
import { PhasePainter } from "./painter.js";

/** @import { Lane, Lanes } from "../timeline/lanes.js" */
/** @import { Stretch } from "../timeline/window.js" */
/** @import { Look, Phases } from "./painter.js" */

const NARROWEST = 1e-4; // seconds
const LIMITS = { narrowest: NARROWEST, room: 1, selection: NARROWEST };

/** @extends {Timeline<PhasePainter>} */
export class PhaseTimeline extends Timeline {
  /** @type {(Stretch & { lanes: Lanes }) | null} */
  detail = null; // finer lanes of a window
  /** @type {number | null} */
  zero = null; // of the axis; null: the first span
  isLive = false;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {object} parts
   * @param {Lanes} parts.lanes the store's
   * @param {Phases} parts.phases
   * @param {Partial<Look> & { labelWidth: number }} parts.look
   * @param {(lanes: Lane[]) => Lane[]} [parts.pick] which lanes to show
   * @param {boolean} [parts.isInteractive]
   */
  constructor(canvas, { lanes, phases, look, pick = (all) => all, isInteractive = true }) {
    super(new PhasePainter(canvas, phases, look), LIMITS, null);
    this.lanes = lanes;
    this.pick = pick;
    Object.assign(canvas, { timeline: this }); // for tests
    if (isInteractive) this.listen();
  }

  /** Return [from, to] of everything there is, in seconds. */
  get extent() {
    const { start, end } = this.lanes;
    return Number.isFinite(start) ? { from: start, to: Math.max(end, start + NARROWEST) } : { from: 0, to: 1 };
  }

  get everything() {
    const { from, to } = this.extent;
    return { from, to: to + (to - from) * (this.isLive ? 0.05 : 0) };
  }

  /** Return the lanes to draw: the finer ones of a window where they were read. */
  get source() {
    const { detail, window } = this;
    return detail && window && window.from >= detail.from && window.to <= detail.to ? detail.lanes : this.lanes;
  }

  drawNow() {
    if (!this.canvas.clientWidth || !this.canvas.isConnected) return;
    this.painter.resize();
    const { extent } = this;
    this.painter.paint({
      lanes: this.pick(this.source.sorted),
      window: this.view,
      extent,
      zero: this.zero ?? this.lanes.start,
      selection: this.selection,
      now: this.isLive ? extent.to : null,
    });
  }

  point(/** @type {PointerEvent} */ { offsetX: x, offsetY: y }) {
    const found = this.painter.hit(x, y, this.pick(this.source.sorted), this.view);
    const detail = found && { ...found, x, y, time: this.painter.time(x, this.view) };
    this.dispatchEvent(new CustomEvent("hover", { detail }));
  }
}

/** The strip above a timeline: everything, with the window on it. */
export class Strip extends PhaseTimeline {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {PhaseTimeline} timeline
   * @param {Partial<Look> & { labelWidth: number }} look
   */
  constructor(canvas, timeline, look) {
    const { lanes, pick, painter } = timeline;
    super(canvas, { lanes, pick, phases: painter.phases, look: { gap: 2, ...look }, isInteractive: false });
    this.timeline = timeline;
    timeline.addEventListener("window", () => this.draw());
    dragWindow(this.painter, timeline);
  }

  drawNow() {
    this.selection = this.timeline.window;
    super.drawNow();
  }
}
