/** Where things stand below each other, in CSS pixels, and what is at a height. */

/** @typedef {{ y: number, height: number }} Item */
/** @typedef {Item & { rowHeight: number, detailHeight: number }} LaneItem the heights of its first row and of those below */

/**
 * Return the items between two heights; items are sorted by theirs.
 *
 * @template {Item} T
 * @param {T[]} items
 * @param {number} top
 * @param {number} [bottom] without it, the one item at `top`
 */
export function itemsBetween(items, top, bottom = top + 0.01) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].y + items[middle].height > top) high = middle;
    else low = middle + 1;
  }
  let last = low;
  while (last < items.length && items[last].y < bottom) last += 1;
  return items.slice(low, last);
}

/** Return where the row at a depth of a lane begins. */
export const rowTop = (/** @type {LaneItem} */ { y, rowHeight, detailHeight }, /** @type {number} */ depth) =>
  depth ? y + rowHeight + 1 + (depth - 1) * (detailHeight + 1) : y;

/** Return the depth of the row at a height; the pixel below a row is the row's. */
export const depthAt = (/** @type {LaneItem} */ { y, rowHeight, detailHeight }, /** @type {number} */ at) =>
  at < y + rowHeight + 1 ? 0 : 1 + Math.floor((at - y - rowHeight - 1) / (detailHeight + 1));
