/** What stands under and on the lines of a saved chart, as SVG: the shapes that ./marks.js draws on the screen. */

/** @import { Mark, Plot, Shown } from "./plot" */
/**
 * @typedef {object} Frame where the plot is, in pixels
 * @property {number} left
 * @property {number} right
 * @property {number} top
 * @property {number} bottom
 * @property {(value: number) => number} toX
 * @property {(value: number) => number} toY
 * @property {(name: string) => string} color of a CSS variable
 */

const INK = /** @type {Record<string, string>} */ ({
  alarm: "--state-warning",
  good: "--state-finished",
  capture: "--accent-text",
  change: "--accent-text",
  alert: "--state-failed",
  note: "--text-2",
  resume: "--text-2",
});
const DASHES = /** @type {Record<string, string>} */ ({ change: "4 2", alert: "1 3", note: "1 3" });
/** Bars along the top: how far below it they stand, and by how many pixels they are longer at both ends. */
const BARS = /** @type {Record<string, [number, number]>} */ ({ alarm: [4, 1], good: [8, 1], capture: [0, 3] });

const ENTITIES = /** @type {Record<string, string>} */ ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" });
export const escaped = (/** @type {string} */ text) => text.replace(/[&<>"]/g, (one) => ENTITIES[one]);
const px = (/** @type {number} */ value) => value.toFixed(1);

/** Return the band in which the metric usually is, behind all else. */
export function bandSvg(/** @type {Plot["band"]} */ band, /** @type {Frame} */ frame) {
  if (!band) return "";
  const { left, right, top, bottom, toY, color } = frame;
  const edges = band.map(toY).map((y) => (Number.isFinite(y) ? y : bottom));
  const [low, high] = edges.map((y) => Math.min(Math.max(y, top), bottom));
  const lines = edges
    .filter((y) => y > top && y < bottom)
    .map((y) => `<path d="M${px(left)} ${px(y)}H${px(right)}" stroke="${color("--band-edge")}"/>`);
  const area = `<rect x="${px(left)}" y="${px(high)}" width="${px(right - left)}" height="${px(low - high)}"`;
  return `<g>${area} fill="${color("--band")}"/>${lines.join("")}</g>`;
}

/** Return the dashed line of each hard limit with its number. */
export function limitsSvg(/** @type {NonNullable<Plot["limits"]>} */ limits, /** @type {Frame} */ frame) {
  const { left, right, top, bottom, toY, color } = frame;
  const ink = color("--limit");
  return limits
    .map(({ value, label }) => ({ y: toY(value), label }))
    .filter(({ y }) => y >= top && y <= bottom)
    .map(({ y, label }) => {
      const text = px(y - top > 14 ? y - 3 : y + 12);
      const line = `<path d="M${px(left)} ${px(y)}H${px(right)}" stroke="${ink}" stroke-width="1.5" stroke-dasharray="5 4"/>`;
      return `${line}<text x="${px(right - 3)}" y="${text}" text-anchor="end" fill="${ink}">${escaped(label)}</text>`;
    })
    .join("");
}

/** Return the marks of the page, each with what it says. */
export function marksSvg(/** @type {Mark[]} */ marks, /** @type {Frame} */ frame) {
  const { left, right, toX, color } = frame;
  return marks
    .map((mark) => {
      const [from, to] = [toX(mark.x), toX(mark.to ?? mark.x)];
      if (to < left || from > right) return "";
      const ink = color(mark.color ?? INK[mark.type] ?? "--text-3");
      const shapes = BARS[mark.type] ? barOf(mark.type, [from, to], frame) : signOf(mark.type, from, frame);
      const title = mark.text ? `<title>${escaped(mark.text)}</title>` : "";
      return `<g fill="${ink}" stroke="${ink}" stroke-width="0" data-mark="${escaped(mark.type)}">${shapes}${title}</g>`;
    })
    .join("");
}

function barOf(
  /** @type {string} */ type,
  /** @type {number[]} */ [from, to],
  /** @type {Frame} */ { left, right, top },
) {
  const [below, longer] = BARS[type];
  const [begin, end] = [Math.max(from - longer, left), Math.min(to + longer, right)];
  return `<rect x="${px(begin)}" y="${px(top + below)}" width="${px(Math.max(end - begin, 1))}" height="3"/>`;
}

function signOf(/** @type {string} */ type, /** @type {number} */ x, /** @type {Frame} */ { top, bottom }) {
  const sign = (/** @type {number} */ y, /** @type {string} */ d) => `<path d="M${px(x)} ${px(y)}${d}Z"/>`;
  const line = `<path d="M${px(x)} ${px(top)}V${px(bottom)}" stroke-width="1" stroke-dasharray="${DASHES[type] ?? "2 2"}"/>`;
  switch (type) {
    case "resume":
      return sign(bottom - 7, "l5 7h-10");
    case "change":
      return line + sign(bottom - 9, "l4.5 4.5l-4.5 4.5l-4.5 -4.5");
    case "alert":
      return line + sign(top + 12, "l5 8h-10");
    case "note":
      return line + sign(top + 12, "l9 4l-9 4");
    default:
      return `${line}<rect x="${px(x - 3)}" y="${px(top)}" width="6" height="6"/>`; // a checkpoint
  }
}

/** Return a cross where a value was NaN or infinite: at the top, or at the bottom for -Infinity. */
export function oddSvg(/** @type {Shown["odd"]} */ odd, /** @type {Frame} */ { left, right, top, bottom, toX, color }) {
  const crosses = odd.flatMap(([x, value]) => {
    const at = toX(x);
    const y = value === -Infinity ? bottom - 6 : top + 6;
    return at >= left && at <= right ? [`M${px(at - 3)} ${px(y - 3)}l6 6m-6 0l6 -6`] : [];
  });
  return crosses.length
    ? `<path fill="none" stroke="${color("--limit")}" stroke-width="1.5" d="${crosses.join("")}"/>`
    : "";
}
