/** Ranges of rewards, as the histogram chooses them and the address keeps them, and where points lie. */

/** @typedef {{ from: number | null, below: number | null }} Range of rewards: from this one to below that one */

/** Return a range as the address has it: "0.5..0.75", "..0.5". */
export const rangeText = (/** @type {Range} */ { from, below }) =>
  from === null && below === null ? "" : `${from ?? ""}..${below ?? ""}`;

/** Return the range of the address; what is none is all of them. */
export function rangeOf(/** @type {string | null} */ text) {
  const ends = (text ?? "").split("..");
  const [from, below] = [0, 1].map((i) =>
    ends[i]?.trim() && Number.isFinite(Number(ends[i])) ? Number(ends[i]) : null,
  );
  return ends.length === 2 ? { from, below } : { from: null, below: null };
}

/**
 * Return the range of rewards of some bins, in either order; the first and the last bin have no end there, so that
 * what comes meanwhile is in it.
 *
 * @param {number[]} edges
 * @param {number} one
 * @param {number} other
 */
export function rangeOfBins(edges, one, other) {
  const [first, last] = [Math.min(one, other), Math.max(one, other)];
  return { from: first === 0 ? null : edges[first], below: last === edges.length - 2 ? null : edges[last + 1] };
}

/**
 * Return whether a bin is in the range.
 *
 * @param {number[]} edges
 * @param {number} bin
 * @param {Range} range
 */
export function isInRange(edges, bin, { from, below }) {
  return (from === null || edges[bin + 1] > from) && (below === null || edges[bin] < below);
}

/**
 * Return a function from values to places between `begin` and `end`; one value alone is in the middle.
 *
 * @param {number[]} values
 * @param {number} begin
 * @param {number} end
 */
export function scaleOf(values, begin, end) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return (/** @type {number} */ value) =>
    low === high ? (begin + end) / 2 : begin + ((value - low) / (high - low)) * (end - begin);
}
