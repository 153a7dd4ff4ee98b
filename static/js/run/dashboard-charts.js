/** The charts of a dashboard in their order: moved, resized, added, taken away. Every change gives a new list. */

const WIDEST = 3; // columns
const TALLEST = 3; // rows

/** @typedef {{ metric: string, width: number, height: number }} BoardChart */

const between = (/** @type {number} */ value, /** @type {number} */ least, /** @type {number} */ most) =>
  Math.min(Math.max(Math.round(value), least), most);

/**
 * Return the charts with that of `metric` at the place `to`, counted from 0 in the new order.
 *
 * @param {BoardChart[]} charts
 * @param {string} metric
 * @param {number} to beyond an end means that end
 */
export function moved(charts, metric, to) {
  const from = charts.findIndex((chart) => chart.metric === metric);
  if (from < 0) return charts;
  const rest = charts.filter((chart) => chart.metric !== metric);
  rest.splice(between(to, 0, rest.length), 0, charts[from]);
  return rest;
}

/**
 * Return the charts with that of `metric` as wide and high as said, as far as that goes.
 *
 * @param {BoardChart[]} charts
 * @param {string} metric
 * @param {{ width: number, height: number }} size columns and rows
 */
export const resized = (charts, metric, { width, height }) =>
  charts.map((chart) =>
    chart.metric === metric ? { metric, width: between(width, 1, WIDEST), height: between(height, 1, TALLEST) } : chart,
  );

/** Return the charts with one more at the end; one that is there stays where it is. */
export const withChart = (/** @type {BoardChart[]} */ charts, /** @type {string} */ metric) =>
  charts.some((chart) => chart.metric === metric) ? charts : [...charts, { metric, width: 1, height: 1 }];

export const without = (/** @type {BoardChart[]} */ charts, /** @type {string} */ metric) =>
  charts.filter((chart) => chart.metric !== metric);

export const isSame = (/** @type {BoardChart[]} */ a, /** @type {BoardChart[]} */ b) =>
  a.length === b.length &&
  a.every(({ metric, width, height }, i) => metric === b[i].metric && width === b[i].width && height === b[i].height);

/**
 * Return which dashboard a tab opens with: the one that the address names, the person's default, the project's, the first.
 *
 * @template {{ id: string, is_default: boolean, is_shared: boolean }} B
 * @param {B[]} boards
 * @param {string | null} asked
 * @returns {B | null}
 */
export function firstOf(boards, asked) {
  const isOwnDefault = (/** @type {B} */ board) => board.is_default && !board.is_shared;
  return (
    boards.find(({ id }) => id === asked) ??
    boards.find(isOwnDefault) ??
    boards.find((board) => board.is_default) ??
    boards[0] ??
    null
  );
}
