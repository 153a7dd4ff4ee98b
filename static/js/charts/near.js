/** What a cursor on a chart reads of the marks beside it. */

/** @import uPlot from "uplot" */
/** @import { Mark } from "./plot" */

const REACH = 6; // pixels from the cursor

/**
 * Return the words of the marks within `reach` of x, one line each; "" where there are none.
 *
 * @param {Mark[]} marks
 * @param {number} x
 * @param {number} reach in units of x
 */
const marksNear = (marks, x, reach) =>
  marks
    .filter((mark) => mark.text && x >= mark.x - reach && x <= (mark.to ?? mark.x) + reach)
    .map((mark) => mark.text)
    .join("\n");

/** Show what the marks beside the cursor say. */
export function tellMarks(/** @type {uPlot} */ u, /** @type {Mark[]} */ marks) {
  const at = (/** @type {number} */ pixels) => u.posToVal(pixels, "x");
  u.over.title = marksNear(marks, at(u.cursor.left ?? -1), Math.abs(at(REACH) - at(0)));
}
