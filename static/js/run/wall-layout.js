/** Where cards of equal height stand in their section, and which of them are near the screen. */

/** @typedef {{ top: number, count: number, columns: number }} Block the cards of a section; `top` in pixels */

/** Return how high the cards of a block are together, in pixels, with `row` pixels from one row to the next. */
export function heightOf(
  /** @type {Pick<Block, "count" | "columns">} */ { count, columns },
  /** @type {number} */ row,
) {
  return Math.ceil(count / columns) * row;
}

/**
 * Return the first card that touches [from, to] and the first one behind it; equal where none does.
 *
 * @param {Block} block
 * @param {number} from pixels, as `block.top`
 * @param {number} to
 * @param {number} row
 * @returns {[first: number, end: number]}
 */
export function cardsBetween({ top, count, columns }, from, to, row) {
  const first = Math.max(0, Math.floor((from - top) / row));
  const end = Math.ceil((to - top) / row);
  if (end <= first) return [0, 0];
  return [Math.min(first * columns, count), Math.min(Math.max(end, 0) * columns, count)];
}

/** Return the row and the column of a card. */
export function placeOf(/** @type {number} */ at, /** @type {number} */ columns) {
  return { row: Math.floor(at / columns), column: at % columns };
}
