/** What a cursor on a chart reads of the marks beside it. */

/** @import { Mark } from "./plot" */

/**
 * Return the words of the marks within `reach` of x, one line each; "" where there are none.
 *
 * @param {Mark[]} marks
 * @param {number} x
 * @param {number} reach in units of x
 */
export const marksNear = (marks, x, reach) =>
  marks
    .filter((mark) => mark.text && Math.abs(mark.x - x) <= reach)
    .map((mark) => mark.text)
    .join("\n");
