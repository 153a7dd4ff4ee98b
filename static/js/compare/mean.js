/** The mean of several lines over x: each line counts where it has begun and not ended, straight between its points. */

/**
 * Return { x, y, counts } over the union of all x; `counts` says of how many lines each mean is. `columns` is a list of { x, y, reach },
 * x rising; points that are not finite are left out. `reach` is from where to where a line goes, where it has more points than were
 * read: at the edge of a zoom it goes on to a point outside, so that a mean there would only look as if it were of fewer lines. It
 * begins and ends where all lines that go on have a point.
 */
export function meanOf(columns) {
  const lines = columns.map(finitePoints).filter((line) => line.x.length);
  const x = Float64Array.from(new Set(lines.flatMap((line) => line.x))).sort();
  const sum = new Float64Array(x.length);
  const count = new Float64Array(x.length);
  const isCut = new Uint8Array(x.length);
  for (const line of lines) {
    let at = 0;
    for (let i = 0; i < x.length; i += 1) {
      if (x[i] < line.x[0] || x[i] > line.x.at(-1)) {
        if (x[i] >= line.reach[0] && x[i] <= line.reach[1]) isCut[i] = 1;
        continue;
      }
      while (line.x[at + 1] <= x[i]) at += 1;
      sum[i] += between(line, at, x[i]);
      count[i] += 1;
    }
  }
  const places = Array.from(x.keys()).filter((i) => !isCut[i]);
  return { x: places.map((i) => x[i]), y: places.map((i) => sum[i] / count[i]), counts: places.map((i) => count[i]) };
}

function finitePoints({ x, y, reach = [Infinity, -Infinity] }) {
  const places = x.map((_x, i) => i).filter((i) => Number.isFinite(y[i]));
  return { x: places.map((i) => x[i]), y: places.map((i) => y[i]), reach };
}

function between(line, at, x) {
  const [x0, x1, y0, y1] = [line.x[at], line.x[at + 1], line.y[at], line.y[at + 1]];
  return x === x0 || x1 === undefined ? y0 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}
