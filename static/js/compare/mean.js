/** The mean of several lines over x: each line counts where it has begun and not ended, straight between its points. */

/**
 * Return { x, y, counts } over the union of all x; `counts` says of how many lines each mean is. `columns` is a list of { x, y }, x
 * rising; points that are not finite are left out.
 */
export function meanOf(columns) {
  const lines = columns.map(finitePoints).filter((line) => line.x.length);
  const x = Float64Array.from(new Set(lines.flatMap((line) => line.x))).sort();
  const sum = new Float64Array(x.length);
  const count = new Float64Array(x.length);
  for (const line of lines) {
    let at = 0;
    for (let i = 0; i < x.length; i += 1) {
      if (x[i] < line.x[0] || x[i] > line.x.at(-1)) continue;
      while (line.x[at + 1] <= x[i]) at += 1;
      sum[i] += between(line, at, x[i]);
      count[i] += 1;
    }
  }
  return { x: Array.from(x), y: Array.from(sum, (total, i) => total / count[i]), counts: Array.from(count) };
}

function finitePoints({ x, y }) {
  const places = x.map((_x, i) => i).filter((i) => Number.isFinite(y[i]));
  return { x: places.map((i) => x[i]), y: places.map((i) => y[i]) };
}

function between(line, at, x) {
  const [x0, x1, y0, y1] = [line.x[at], line.x[at + 1], line.y[at], line.y[at + 1]];
  return x === x0 || x1 === undefined ? y0 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}
