/** Parallel coordinates: an axis a column, a line a run. Dragging along an axis keeps the runs that cross it there. */

import { el, fill, gettext } from "../format.js";

const HEIGHT = 250;
const TOP = 34; // above the axes: their names
const BOTTOM = 10;
const SIDE = 64; // left and right: the numbers of the outermost axes
const REACH = 14; // CSS pixels beside an axis that belong to it
const STILL = 3; // pixels that a click may move
const MOST_LETTERS = 22;
const LETTER = 6.4; // pixels of one, with room to the next name
const MOST_TICKS = 8;

/** @import { Axis, Brush, SweepRun } from "./axis.js" */

export class Parallel {
  /**
   * @param {HTMLElement} place
   * @param {(id: string, range: [number, number] | null) => void} onBrush
   */
  constructor(place, onBrush) {
    this.place = place;
    this.onBrush = onBrush;
    /** @type {{ axes: Axis[], runs: SweepRun[], all: Map<string, Axis>, brush: Brush, best: string } | null} */
    this.shown = null;
    this.isDragging = false;
    new ResizeObserver(() => this.draw()).observe(place);
  }

  /** Draw these axes; `best` is the run to put on top. */
  show(/** @type {NonNullable<Parallel["shown"]>} */ shown) {
    this.shown = shown;
    if (!this.isDragging) this.draw();
  }

  draw() {
    const width = this.place.clientWidth;
    if (!this.shown || !width) return;
    const { axes, runs, all, brush, best } = this.shown;
    const x = (/** @type {number} */ i) =>
      axes.length > 1 ? SIDE + (i * (width - 2 * SIDE)) / (axes.length - 1) : width / 2;
    const isIn = (/** @type {SweepRun} */ run) => brush.holds(run, all);
    const rank = (/** @type {SweepRun} */ run) => Number(isIn(run)) + Number(run.id === best);
    const lines = runs
      .toSorted((a, b) => rank(a) - rank(b))
      .flatMap((run) => this.#line(run, { isOut: !isIn(run), isBest: run.id === best, x }));
    const label = fill(gettext("%(n)s runs over %(axes)s; the table has their numbers"), {
      n: runs.length,
      axes: axes.map(({ column }) => column.label).join(", "),
    });
    this.place.replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label },
        svg("g", { class: "par-lines" }, ...lines),
        ...axes.map((axis, i) =>
          this.#axis(axis, { x: x(i), apart: x(1) - x(0) || width }, brush.ranges.get(axis.column.id) ?? null),
        ),
      ),
    );
  }

  /** Return the stretches of a run's line; where it has no number on an axis, the line has a gap. */
  #line(run, { isOut, isBest, x }) {
    /** @type {string[][]} */
    const stretches = [[]];
    for (const [i, axis] of this.shown?.axes.entries() ?? []) {
      const number = axis.number(run);
      if (Number.isFinite(number)) stretches.at(-1)?.push(`${x(i).toFixed(1)},${y(axis, number).toFixed(1)}`);
      else stretches.push([]);
    }
    const look = { "data-run-color": run.color, class: isOut ? "is-out" : isBest ? "is-best" : "" };
    return stretches
      .filter((points) => points.length)
      .map((points) =>
        points.length > 1
          ? svg("polyline", { ...look, points: points.join(" ") }, svg("title", {}, run.name))
          : svg("circle", { ...look, cx: points[0].split(",")[0], cy: points[0].split(",")[1], r: 3 }),
      );
  }

  /**
   * @param {Axis} axis
   * @param {{ x: number, apart: number }} place where it stands, and how far from the next
   * @param {[number, number] | null} range
   */
  #axis(axis, { x, apart }, range) {
    const { label } = axis.column;
    const most = Math.max(3, Math.min(MOST_LETTERS, Math.floor(apart / LETTER)));
    const name = label.length > most ? `${label.slice(0, most - 1)}…` : label;
    const few = axis.distinct.length <= MOST_TICKS ? axis.distinct : [0, 0.5, 1].map((share) => axis.numberAt(share));
    const ticks = few.map((number) =>
      svg("text", { x: x + 5, y: y(axis, number) + 3, class: "par-tick" }, axis.text(number)),
    );
    const kept = svg("rect", { class: "par-kept", x: x - 5, width: 10, y: 0, height: 0 });
    if (range) place(kept, y(axis, range[1]), y(axis, range[0]));
    const hit = svg("rect", {
      class: "par-hit",
      x: x - REACH,
      width: 2 * REACH,
      y: TOP - 6,
      height: HEIGHT - TOP - BOTTOM + 12,
    });
    hit.addEventListener("pointerdown", (event) => this.#drag(axis, kept, hit, /** @type {PointerEvent} */ (event)));
    return svg(
      "g",
      {},
      svg("text", { x, y: 14, class: "par-name", "text-anchor": "middle" }, name, svg("title", {}, label)),
      svg("line", { class: "par-axis", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
      ...ticks,
      kept,
      hit,
    );
  }

  /** Follow the pointer from where it went down: a stretch of the axis; without a move, take the stretch away. */
  #drag(axis, kept, hit, event) {
    const from = this.#y(event);
    this.isDragging = true;
    hit.setPointerCapture(event.pointerId);
    const move = (/** @type {PointerEvent} */ moved) =>
      place(kept, Math.min(from, this.#y(moved)), Math.max(from, this.#y(moved)));
    const end = (/** @type {PointerEvent} */ ended) => {
      hit.removeEventListener("pointermove", move);
      this.isDragging = false;
      const to = this.#y(ended);
      const ends = [from, to].map((at) => axis.numberAt(shareAt(at)));
      const isRange = Math.abs(to - from) > STILL && ended.type === "pointerup";
      this.onBrush(axis.column.id, isRange ? [Math.min(...ends), Math.max(...ends)] : null);
    };
    hit.addEventListener("pointermove", move);
    for (const type of ["pointerup", "pointercancel"]) hit.addEventListener(type, end, { once: true });
  }

  #y(/** @type {PointerEvent} */ event) {
    const at = event.clientY - this.place.getBoundingClientRect().top;
    return Math.min(Math.max(at, TOP - 6), HEIGHT - BOTTOM + 6); // a little beyond both ends, so that they are in
  }
}

/**
 * Return what takes the ranges from the keyboard: two ends of each axis, or a word.
 *
 * @param {Axis} axis
 * @param {[number, number] | undefined} range
 * @param {(range: [number, number] | null) => void} onRange
 */
export function rangeFields(axis, range, onRange) {
  const { label, words } = axis.column;
  if (words.length) {
    const options = [gettext("any"), ...words].map((word, i) => el("option", { value: i - 1 }, word));
    const select = el("select", { class: "form-select", "aria-label": label }, ...options);
    select.value = range && Math.round(range[0]) === Math.round(range[1]) ? String(Math.round(range[0])) : "-1";
    select.addEventListener("change", () => onRange(Number(select.value) < 0 ? null : around(Number(select.value))));
    return el("div", { class: "par-range" }, el("span", { class: "cut", title: label }, label), select);
  }
  const input = (/** @type {string} */ text, /** @type {number | undefined} */ value) =>
    el("input", {
      class: "form-control num",
      inputmode: "decimal",
      "aria-label": fill(text, { label }),
      value: value === undefined ? "" : axis.text(value),
      placeholder: "—",
    });
  const from = input(gettext("%(label)s from"), range?.[0]);
  const to = input(gettext("%(label)s to"), range?.[1]);
  const read = (/** @type {HTMLInputElement} */ field, /** @type {number} */ without) =>
    field.value.trim() === "" ? without : Number(field.value);
  const change = () => {
    const ends = [read(from, axis.range[0]), read(to, axis.range[1])];
    for (const [i, field] of [from, to].entries()) field.setAttribute("aria-invalid", String(Number.isNaN(ends[i])));
    if (ends.some(Number.isNaN)) return;
    onRange(from.value.trim() || to.value.trim() ? [ends[0], ends[1]] : null);
  };
  for (const field of [from, to]) field.addEventListener("change", change);
  return el("div", { class: "par-range" }, el("span", { class: "cut", title: label }, label), from, "–", to);
}

/** @returns {[number, number]} */
const around = (/** @type {number} */ place_) => [place_ - 0.5, place_ + 0.5];

const y = (/** @type {Axis} */ axis, /** @type {number} */ number) =>
  TOP + (1 - axis.shareOf(number)) * (HEIGHT - TOP - BOTTOM);
const shareAt = (/** @type {number} */ at) => 1 - (at - TOP) / (HEIGHT - TOP - BOTTOM);

function place(/** @type {Element} */ rect, /** @type {number} */ top, /** @type {number} */ bottom) {
  const [high, low] = [top, bottom].map((at) => Math.min(Math.max(at, TOP - 6), HEIGHT - BOTTOM + 6));
  rect.setAttribute("y", String(high));
  rect.setAttribute("height", String(Math.max(0, low - high)));
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}
