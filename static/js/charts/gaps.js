/** Where a series has a hole: no line leads across it, and it is marked on the x axis. */

/** @import { Ys } from "./align.js" */
/** @import { Column } from "./plot" */

const USUAL = 0.9; // so many of the distances are usual ones,
const WIDE = 2 + 1e-6; // and more than so many times the largest of these, rounded, is a hole
const FEWEST = 5; // distances that say what is usual

/** @type {WeakMap<ArrayLike<number>, { length: number, breaks: number[] }>} */
const known = new WeakMap();

/**
 * Return the places before which a series has a hole: i, where no line leads from point i - 1 to point i.
 *
 * @param {ArrayLike<number>} xs rising
 */
export function breaksOf(xs) {
  const before = known.get(xs);
  if (before?.length === xs.length) return before.breaks;
  const breaks = found(xs);
  known.set(xs, { length: xs.length, breaks });
  return breaks;
}

/** @returns {number[]} */
function found(/** @type {ArrayLike<number>} */ xs) {
  if (xs.length <= FEWEST) return [];
  const distances = Float64Array.from({ length: xs.length - 1 }, (_none, i) => xs[i + 1] - xs[i]);
  let [least, most] = [Infinity, 0];
  for (const distance of distances) {
    if (distance < least) least = distance;
    if (distance > most) most = distance;
  }
  if (most <= WIDE * least) return []; // as even as most series are
  const usual = distances.slice().sort()[Math.floor(USUAL * (distances.length - 1))];
  /** @type {number[]} */
  const breaks = [];
  for (let i = 0; i < distances.length; i += 1) if (distances[i] > WIDE * usual) breaks.push(i + 1);
  return breaks;
}

/**
 * Return the places before which no line leads on: of a hole, and where a mean is of more or fewer lines from there on.
 *
 * @param {Pick<Column, "breaks" | "counts">} column
 */
export function endsOf({ breaks, counts = [] }) {
  const changes = counts.flatMap((count, i) => (i && count !== counts[i - 1] ? [i] : []));
  return changes.length ? [...new Set([...breaks, ...changes])].sort((a, b) => a - b) : breaks;
}

/**
 * Return the places of values that stand alone: between holes and what is not a number, so that no line shows them. Where a value is
 * undefined, another series has a point: that is no hole.
 *
 * @param {Ys} ys
 * @param {(place: number) => boolean} isBroken whether there is a hole before the value at a place
 */
export function loneValues(ys, isBroken) {
  /** @type {number[]} */
  const lone = [];
  let last = -1; // the value before, if a line may go on from it
  let isAlone = false;
  const end = () => {
    if (last >= 0 && isAlone) lone.push(last);
  };
  ys.forEach((y, i) => {
    if (y === undefined) return;
    const goesOn = y !== null && last >= 0 && !isBroken(i);
    if (!goesOn) end();
    last = y === null ? -1 : i;
    isAlone = !goesOn;
  });
  end();
  return lone;
}
