/** How charts are asked for: in how many columns, in which parts. */

const [FEWEST, MOST, STEP] = [200, 4000, 50]; // columns of an answer
const NAMES_PER_REQUEST = [1, 5, 6]; // the first chart does not wait for the others, nor those in sight for those below

/** Return how many columns to read for a chart that is so many CSS pixels wide: one a pixel, a few widths for all screens. */
export const columnsFor = (width) => Math.min(Math.max(Math.ceil((width || 600) / STEP) * STEP, FEWEST), MOST);

/** Return the names in parts, one for each request. */
export function parts(names) {
  const found = [];
  for (let at = 0; at < names.length; ) {
    const size = NAMES_PER_REQUEST[Math.min(found.length, NAMES_PER_REQUEST.length - 1)];
    found.push(names.slice(at, at + size));
    at += size;
  }
  return found;
}
