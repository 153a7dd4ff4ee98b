/** Columns of several series on one x axis, as uPlot wants them. */

/** Return [xs, ...ys] over the union of all x; a series has null where it has no point. `columns` is a list of { x, y }. */
export function align(columns) {
  if (columns.length === 1) return [columns[0].x, columns[0].y];
  const xs = union(columns.map((column) => column.x));
  return [xs, ...columns.map(({ x, y }) => spread(xs, x, y))];
}

function union(lists) {
  const first = lists[0];
  if (lists.every((list) => list === first || same(list, first))) return first;
  return Float64Array.from(new Set(lists.flatMap((list) => Array.from(list)))).sort();
}

function same(a, b) {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i += 1) if (a[i] !== b[i]) return false;
  return true;
}

/** Return y at each of xs, null where the series has no point; every x is in xs. */
export function spread(xs, x, y) {
  if (x.length === xs.length) return y;
  const out = new Array(xs.length).fill(null);
  let at = 0;
  for (let i = 0; i < x.length; i += 1) {
    while (xs[at] < x[i]) at += 1;
    out[at] = y[i];
  }
  return out;
}

/** Return cumulative sums of the columns, first at the bottom; missing values count as nothing. */
export function stack(ys) {
  const total = new Array(ys[0]?.length ?? 0).fill(0);
  return ys.map((column) =>
    column.map((y, i) => {
      if (y !== null && Number.isFinite(y)) total[i] += y;
      return total[i];
    }),
  );
}

/** Split values into what a line can show (others null) and where they are not finite: [line, [[index, value]…]]. */
export function finite(ys) {
  const odd = [];
  const line = Array.from(ys, (y, i) => {
    if (y === null || y === undefined || Number.isFinite(y)) return y ?? null;
    odd.push([i, y]);
    return null;
  });
  return [line, odd];
}
