/** Everything at a glance above the timeline of a trace, with the window on it. */

import { color } from "../charts/colors.js";
import { Painter } from "../timeline/painter.js";
import { dragWindow } from "../timeline/timeline.js";
import { Sheet } from "./sheet.js";
import { axisText, SECOND } from "./times.js";

/** @import { Lane } from "./layout.js" */
/** @import { Palette } from "./palette.js" */
/** @import { Loader } from "./tiles.js" */
/** @import { View } from "./view.js" */

const ROW = { few: 13, many: 9 };
const MOST = 6;
const AXIS = 16;
const TICKS = 160; // pixels apart

export class Strip extends Painter {
  row = ROW.few; // pixels high
  loads = 0; // how often tiles have arrived
  signature = ""; // of what is painted

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {View} view
   * @param {Palette} palette
   * @param {Loader} loader
   */
  constructor(canvas, view, palette, loader) {
    super(canvas, view.painter.label, SECOND, { alpha: false });
    this.view = view;
    this.palette = palette;
    this.loader = loader;
    this.sheet = new Sheet(palette);
    view.addEventListener("drawn", () => this.drawNow());
    dragWindow(this, view);
  }

  /**
   * Return the lanes that stand for all: the phases, or else the fullest lane of each file.
   *
   * @returns {Lane[]}
   */
  get lanes() {
    const { groups } = this.view.layout;
    const phases = groups.find(({ key }) => key === "phases");
    if (phases) return phases.lanes.slice(0, MOST);
    return groups
      .filter(({ layer }) => layer !== undefined)
      .map(({ lanes }) => lanes.reduce((best, lane) => (weight(lane) > weight(best) ? lane : best)))
      .slice(0, MOST);
  }

  drawNow() {
    const { canvas, view, lanes } = this;
    this.row = lanes.length < 3 ? ROW.few : ROW.many;
    const height = lanes.length * (this.row + 1) + AXIS;
    if (!canvas.clientWidth || !lanes.length) return;
    if (canvas.clientHeight !== height) canvas.style.height = `${height}px`;
    this.resize();
    this.label = view.painter.label;
    const { width, label, ratio, palette, loads } = this;
    const { from, to } = view.extent;
    const signature = [width, height, ratio, from, to, palette.version, loads, lanes.map(({ key }) => key).join()];
    if (signature.join("|") !== this.signature) {
      this.signature = signature.join("|");
      this.sheet.resize(width - label, height, ratio);
      this.#bars(lanes);
    }
    this.#compose(lanes);
  }

  /** Tiles have arrived: paint anew with the next frame. */
  loaded() {
    this.loads += 1;
  }

  #bars(/** @type {Lane[]} */ lanes) {
    const { sheet, loader } = this;
    sheet.begin(this.view.extent);
    for (const [i, lane] of lanes.entries()) sheet.row(lane, 0, i * (this.row + 1), this.row);
    const missing = sheet.end();
    if (missing.length) loader.want([...loader.queue, ...missing]);
  }

  #compose(/** @type {Lane[]} */ lanes) {
    const { context, view, width, height, label } = this;
    context.fillStyle = color("--surface");
    context.fillRect(0, 0, width, height);
    context.font = '11px Inter, "Inter", system-ui, sans-serif';
    context.textBaseline = "middle";
    for (let i = 0; i < lanes.length; i += 1) {
      context.fillStyle = this.waiting;
      context.fillRect(label, i * (this.row + 1), width - label, this.row);
    }
    context.fillStyle = color("--text-2");
    const titles = lanes.map(({ title }) => title);
    if (lanes.length < 3)
      for (const [i, title] of titles.entries())
        context.fillText(title, 0, i * (this.row + 1) + this.row / 2 + 0.5, label - 10);
    else context.fillText(this.canvas.dataset.all ?? "", 0, (lanes.length * (this.row + 1)) / 2, label - 10);
    context.drawImage(this.sheet.canvas, label, 0, width - label, height);
    this.#axis(lanes.length * (this.row + 1));
    const { window, extent } = view;
    if (!window) return;
    const x = (/** @type {number} */ time) => this.x(Math.min(Math.max(time, extent.from), extent.to), extent);
    const [left, right] = [x(window.from), Math.max(x(window.to), x(window.from) + 2)];
    const bottom = lanes.length * (this.row + 1) - 1;
    context.globalAlpha = 0.55;
    context.fillStyle = color("--surface");
    context.fillRect(label, 0, left - label, bottom);
    context.fillRect(right, 0, width - right, bottom);
    context.globalAlpha = 1;
    context.strokeStyle = color("--accent-text");
    context.strokeRect(left - 0.5, 0.5, right - left + 1, bottom - 1);
  }

  #axis(/** @type {number} */ top) {
    const { context, view, width } = this;
    const { step, at } = this.axis(view.extent, view.zero, TICKS);
    context.fillStyle = color("--text-3");
    for (const time of at) {
      const left = this.x(time + view.zero, view.extent);
      const text = axisText(time, step);
      if (left + context.measureText(text).width < width) context.fillText(text, left, top + AXIS / 2);
    }
  }
}

/** How well a lane stands for its file: by its events, frames of Python last. */
const weight = (/** @type {Lane} */ { events = 0, isStack }) => (isStack ? events / 1e9 : events);
