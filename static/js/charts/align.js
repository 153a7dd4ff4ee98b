/** Columns of several series on one x axis, as uPlot wants them. */

/** @typedef {number[] | Float64Array} Xs ascending */
/** @typedef {(number | null | undefined)[]} Ys null: no number; undefined: another series has a point there */

/**
 * Return [xs, ...ys] over the union of all x; a series has undefined where it has no point.
 *
 * @param {{ x: Xs, y: Ys }[]} columns
 * @returns {[Xs, ...Ys[]]}
 */
export function align(columns) {
  if (columns.length === 1) return [columns[0].x, columns[0].y];
  const xs = union(columns.map((column) => column.x));
  return [xs, ...columns.map(({ x, y }) => spread(xs, x, y))];
}

function union(/** @type {Xs[]} */ lists) {
  const first = lists[0];
  if (lists.every((list) => list === first || same(list, first))) return first;
  return Float64Array.from(new Set(lists.flatMap((list) => Array.from(list)))).sort();
}

function same(/** @type {Xs} */ a, /** @type {Xs} */ b) {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i += 1) if (a[i] !== b[i]) return false;
  return true;
}

/**
 * Return y at each of xs, undefined where the series has no point; every x is in xs.
 *
 * @param {Xs} xs
 * @param {Xs} x
 * @param {Ys} y
 */
export function spread(xs, x, y) {
  if (x.length === xs.length) return y;
  const out = new Array(xs.length).fill(undefined);
  let at = 0;
  for (let i = 0; i < x.length; i += 1) {
    while (xs[at] < x[i]) at += 1;
    out[at] = y[i];
  }
  return out;
}

const isNumber = (/** @type {Ys[number]} */ y) => typeof y === "number" && Number.isFinite(y);

/** Return cumulative sums of the columns, first at the bottom; missing values count as nothing. */
export function stack(/** @type {Ys[]} */ ys) {
  const total = new Array(ys[0]?.length ?? 0).fill(0);
  return ys.map((column) =>
    column.map((y, i) => {
      if (isNumber(y)) total[i] += y;
      return total[i];
    }),
  );
}

/**
 * Split values into what a line can show (null for what is no number) and where they are not finite.
 *
 * @param {Ys} ys
 * @returns {[line: Ys, odd: [index: number, value: number][]]}
 */
export function finite(ys) {
  /** @type {[index: number, value: number][]} */
  const odd = [];
  const line = Array.from(ys, (y, i) => {
    if (y === null || y === undefined || isNumber(y)) return y;
    odd.push([i, y]);
    return null;
  });
  return [line, odd];
}
