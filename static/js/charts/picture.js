/** A chart as a file: its numbers as CSV, its lines as SVG. */

import { endsOf } from "./gaps.js";
import { bandSvg, escaped, limitsSvg, marksSvg, oddSvg } from "./picture-marks.js";

/** @import { DrawnLine, Mark, Plot, Shown } from "./plot" */

const MARGIN = { left: 64, right: 24, top: 34, bottom: 32 };
const FONT = 'font-family="system-ui, sans-serif" font-size="11"';
const TICKS = 5;

/**
 * Return the columns that a chart shows: x, then of each line what was measured (where one point stands for many: their mean, the
 * least and the most of them) and what was smoothed. A value that is missing is empty, one not finite has its name.
 *
 * @param {Shown} shown
 * @param {{ xName: string, smoothing: string }} words `smoothing` is how smoothed lines are smoothed, "" for none
 */
export function csvOf(shown, { xName, smoothing }) {
  const columns = shown.lines.flatMap((line) => columnsOf(line, smoothing));
  const found = columns.map(({ x, values }) => new Map(Array.from(x, (at, i) => [at, values[i]])));
  const rows = Array.from(shown.data[0], (x) => [x, ...found.map((column) => column.get(x) ?? "")]);
  const head = [xName, ...columns.map(({ name }) => name)].map(quoted);
  return `${[head, ...rows].map((row) => row.join(",")).join("\n")}\n`;
}

/** @param {DrawnLine} line @param {string} smoothing */
function columnsOf({ label, column: { x, y, smooth, low, high, of, n } }, smoothing) {
  const columns = [{ name: label, x, values: y }];
  if (low && high && of > n)
    columns.push({ name: `${label} (least)`, x, values: low }, { name: `${label} (most)`, x, values: high });
  if (smoothing && smooth.length && smooth !== y)
    columns.push({ name: `${label} (smoothed ${smoothing})`, x, values: smooth });
  return columns;
}

/** A name as a field of CSV: quoted where it has to be; one that a spreadsheet would compute gets an apostrophe. */
function quoted(/** @type {string} */ text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/**
 * Return an SVG of what a chart shows, on a white ground: all that stands on it, as on the screen.
 *
 * @param {Shown} shown
 * @param {object} look
 * @param {string} look.title
 * @param {string} look.xName
 * @param {number} look.width pixels
 * @param {number} look.height
 * @param {{ min: number, max: number }} look.x what is in sight
 * @param {{ min: number, max: number }} look.y
 * @param {boolean} look.isLog
 * @param {Plot["band"]} [look.band]
 * @param {Plot["limits"]} [look.limits]
 * @param {Mark[]} [look.marks] on the x axis of the chart
 * @param {(name: string) => string} look.color of a CSS variable
 * @param {(value: number) => string} look.xTick
 * @param {(value: number) => string} look.yTick
 */
export function svgOf(shown, look) {
  const { title, xName, width, height, x, y, isLog, band, limits = [], marks = [], color, xTick, yTick } = look;
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const scaled = isLog ? Math.log10 : (/** @type {number} */ value) => value;
  const [low, high] = [scaled(y.min), scaled(y.max)];
  const toX = (/** @type {number} */ value) => MARGIN.left + ((value - x.min) / (x.max - x.min)) * inner.width;
  const toY = (/** @type {number} */ value) =>
    MARGIN.top + inner.height - ((scaled(value) - low) / (high - low)) * inner.height;
  const bottom = MARGIN.top + inner.height;
  const frame = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom, toX, toY, color };
  const ticks = Array.from({ length: TICKS }, (_none, i) => i / (TICKS - 1));
  const grid = ticks.map((share) => {
    const value = isLog ? 10 ** (low + share * (high - low)) : low + share * (high - low);
    const at = toY(value).toFixed(1);
    const line = `<line x1="${MARGIN.left}" x2="${MARGIN.left + inner.width}" y1="${at}" y2="${at}" stroke="#ddd"/>`;
    return `${line}<text x="${MARGIN.left - 6}" y="${at}" dy="4" text-anchor="end" fill="#555">${escaped(yTick(value))}</text>`;
  });
  const below = ticks.map((share) => {
    const value = x.min + share * (x.max - x.min);
    const at = toX(value).toFixed(1);
    return `<text x="${at}" y="${bottom + 16}" text-anchor="middle" fill="#555">${escaped(xTick(value))}</text>`;
  });
  const isShown = (/** @type {number} */ value) => Number.isFinite(value) && !(isLog && value <= 0);
  const place = (/** @type {number} */ at, /** @type {number} */ value) =>
    `${toX(at).toFixed(1)},${toY(value).toFixed(1)}`;
  const xs = shown.data[0];
  const paths = shown.drawn.map((line, i) => {
    const starts = new Set(endsOf(line.column).map((at) => line.column.x[at]));
    let d = "";
    let isDown = false;
    shown.data[i + 1].forEach((value, k) => {
      if (value === undefined || xs[k] < x.min || xs[k] > x.max) return;
      if (starts.has(xs[k])) isDown = false;
      if (value !== null && isShown(value)) d += `${isDown ? "L" : "M"}${place(xs[k], value)}`;
      isDown = value !== null && isShown(value);
    });
    const isThin = line.look === "ghost" || line.look === "dead";
    const stroke = `stroke="${color(line.color)}" stroke-width="${isThin ? 1 : 1.6}" stroke-opacity="${isThin ? 0.3 : 1}"`;
    const caps = 'stroke-linecap="round"'; // a value that stands alone is a dot
    const dash = line.look === "some" ? ' stroke-dasharray="3 4"' : "";
    return `<path fill="none" ${stroke} ${caps}${dash} d="${d}"><title>${escaped(line.label)}</title></path>`;
  });
  const around = shown.envelopes.map((own) => {
    const { low, high } = own;
    const columns = Array.from(own.x, (at, i) => [at, low[i], high[i]]).flatMap(([at, least, most]) =>
      at === null || least === null || most === null || at < x.min || at > x.max || !isShown(most)
        ? []
        : [`M${place(at, isShown(least) ? least : y.min)}L${place(at, most)}`],
    );
    return `<path fill="none" stroke="${color(own.color)}" stroke-opacity="0.26" d="${columns.join("")}"/>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ${FONT}>`,
    `<rect width="100%" height="100%" fill="#fff"/>`,
    `<clipPath id="plot"><rect x="${MARGIN.left}" y="${MARGIN.top}" width="${inner.width}" height="${inner.height}"/></clipPath>`,
    `<text x="${MARGIN.left}" y="20" font-size="13" font-weight="600">${escaped(title)}</text>`,
    ...grid,
    ...below,
    `<text x="${MARGIN.left + inner.width}" y="${bottom + 28}" text-anchor="end" fill="#555">${escaped(xName)}</text>`,
    `<g clip-path="url(#plot)">`,
    bandSvg(band, frame),
    limitsSvg(limits, frame),
    around.join(""),
    paths.join(""),
    marksSvg(marks, frame),
    oddSvg(shown.odd, frame),
    "</g>",
    "</svg>",
  ].join("\n");
}
