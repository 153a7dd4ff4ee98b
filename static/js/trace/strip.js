/** Everything at a glance above the timeline, with the window on it: drag moves the window or draws a new one. */

import { brushOf, color, hatch, onTheme } from "../charts/colors.js";
import { axisText, niceStep } from "./clock.js";
import { paintColumns, paintRow } from "./painter.js";
import { Tiles } from "./tiles.js";

/** @import { Lane } from "./layout.js" */
/** @import { Palette } from "./palette.js" */
/** @import { Loader } from "./tiles.js" */
/** @import { View } from "./view.js" */

const ROW = { few: 13, many: 9 };
const MOST = 6;
const AXIS = 16;

export class Strip {
  row = ROW.few; // pixels high
  loads = 0; // how often tiles have arrived
  signature = ""; // of what is painted
  /** @type {CanvasPattern | null} */
  waiting = null;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {View} view
   * @param {Palette} palette
   * @param {Loader} loader
   */
  constructor(canvas, view, palette, loader) {
    this.canvas = canvas;
    this.view = view;
    this.palette = palette;
    this.loader = loader;
    this.context = brushOf(canvas, { alpha: false });
    this.sheet = document.createElement("canvas");
    this.brush = brushOf(this.sheet);
    onTheme(() => {
      this.waiting = null;
    });
    view.addEventListener("drawn", () => this.drawNow());
    canvas.addEventListener("pointerdown", (event) => this.#grab(event));
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
      .map(({ lanes }) => lanes.reduce((best, lane) => ((lane.events ?? 0) > (best.events ?? 0) ? lane : best)))
      .slice(0, MOST);
  }

  drawNow() {
    const { canvas, view } = this;
    const { lanes } = this;
    this.row = lanes.length < 3 ? ROW.few : ROW.many;
    const height = lanes.length * (this.row + 1) + AXIS;
    if (!canvas.clientWidth || !lanes.length) return;
    if (canvas.clientHeight !== height) canvas.style.height = `${height}px`;
    const { extent } = view;
    const missing = [];
    const ratio = window.devicePixelRatio || 1;
    const { label } = view.painter;
    const width = canvas.clientWidth;
    const signature = [
      width,
      height,
      ratio,
      extent.from,
      extent.to,
      this.palette.version,
      this.loads,
      lanes.map(({ key }) => key).join(),
    ].join("|");
    if (signature !== this.signature) {
      this.signature = signature;
      Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
      this.#sheet(lanes, Math.max(Math.round((width - label) * ratio), 1), Math.round(height * ratio), ratio, missing);
      for (const each of missing) this.loader.want([...this.loader.queue, each]);
    }
    this.#compose(lanes, { width, height, label, ratio });
  }

  /** Tiles have arrived: paint anew with the next frame. */
  loaded() {
    this.loads += 1;
  }

  #sheet(lanes, wide, high, ratio, missing) {
    const { sheet, brush, palette, view } = this;
    Object.assign(sheet, { width: wide, height: high });
    const image = brush.createImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    const { from, to } = view.extent;
    const scale = wide / (to - from);
    const level = Tiles.level(1 / scale);
    for (const [i, lane] of lanes.entries()) {
      const first = Math.round(i * (this.row + 1) * ratio);
      const last = Math.round((i * (this.row + 1) + this.row) * ratio);
      const line = pixels.subarray(first * wide, (first + 1) * wide);
      if (lane.rows) {
        if (lane.rows[0]) paintRow(line, lane.rows[0], palette, { from, scale, left: 0, right: wide });
      } else {
        for (const { tile, from: a, to: b } of lane.tiles.cover(lane.block, from, to, level, missing)) {
          const row = tile.row(lane.id, 0);
          const where = {
            from,
            scale,
            left: Math.max(Math.round((a - from) * scale), 0),
            right: Math.min(Math.round((b - from) * scale), wide),
          };
          if (row === null) continue;
          if (tile.isExact) paintRow(line, row, palette, where);
          else paintColumns(line, tile, row, palette, where);
        }
      }
      for (let each = first + 1; each < last; each += 1)
        pixels.copyWithin(each * wide, first * wide, (first + 1) * wide);
    }
    brush.putImageData(image, 0, 0);
  }

  #compose(lanes, { width, height, label, ratio }) {
    const { context, view } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = color("--surface");
    context.fillRect(0, 0, width, height);
    const waiting = this.waiting ?? hatch(context);
    this.waiting = waiting;
    context.font = '11px Inter, "Inter", system-ui, sans-serif';
    context.textBaseline = "middle";
    for (let i = 0; i < lanes.length; i += 1) {
      context.fillStyle = waiting;
      context.fillRect(label, i * (this.row + 1), width - label, this.row);
    }
    context.fillStyle = color("--text-2");
    const titles = lanes.map(({ title }) => title);
    if (lanes.length < 3)
      for (const [i, title] of titles.entries())
        context.fillText(title, 0, i * (this.row + 1) + this.row / 2 + 0.5, label - 10);
    else context.fillText(this.canvas.dataset.all ?? "", 0, (lanes.length * (this.row + 1)) / 2, label - 10);
    context.drawImage(this.sheet, label, 0, width - label, height);
    this.#axis(lanes.length * (this.row + 1), { width, label });
    const { from, to } = view.extent;
    if (!view.window) return;
    const x = (time) => label + ((Math.min(Math.max(time, from), to) - from) / (to - from)) * (width - label);
    const [left, right] = [x(view.window.from), Math.max(x(view.window.to), x(view.window.from) + 2)];
    const bottom = lanes.length * (this.row + 1) - 1;
    context.globalAlpha = 0.55;
    context.fillStyle = color("--surface");
    context.fillRect(label, 0, left - label, bottom);
    context.fillRect(right, 0, width - right, bottom);
    context.globalAlpha = 1;
    context.strokeStyle = color("--accent-text");
    context.strokeRect(left - 0.5, 0.5, right - left + 1, bottom - 1);
  }

  #axis(top, { width, label }) {
    const { context, view } = this;
    const { from, to } = view.extent;
    const step = niceStep((to - from) / Math.max((width - label) / 160, 1));
    context.fillStyle = color("--text-3");
    for (let at = Math.ceil((from - view.zero) / step); at * step + view.zero <= to; at += 1) {
      const left = label + ((at * step + view.zero - from) / (to - from)) * (width - label);
      const text = axisText(at * step, step);
      if (left + context.measureText(text).width < width) context.fillText(text, left, top + AXIS / 2);
    }
  }

  #grab(event) {
    const { canvas, view } = this;
    const { label } = view.painter;
    const { from, to } = view.extent;
    const time = (x) => from + ((x - label) / (canvas.clientWidth - label)) * (to - from);
    const at = time(event.offsetX);
    const start = view.window;
    const isInside = start && at > start.from && at < start.to;
    canvas.setPointerCapture(event.pointerId);
    const move = (now) => {
      const here = time(now.offsetX);
      if (isInside) view.setWindow({ from: start.from + here - at, to: start.to + here - at });
      else if (Math.abs(now.offsetX - event.offsetX) > 2)
        view.setWindow({ from: Math.min(at, here), to: Math.max(at, here) });
    };
    const stop = (now) => {
      canvas.removeEventListener("pointermove", move);
      const width = start ? start.to - start.from : 0;
      if (!isInside && width && Math.abs(now.offsetX - event.offsetX) < 3)
        view.setWindow({ from: at - width / 2, to: at + width / 2 });
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", stop, { once: true });
  }
}
