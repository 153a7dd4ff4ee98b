/** Arithmetic of what is on the screen. */

/** @typedef {{ from: number, to: number }} Stretch of time, in the timeline's unit */
/** @typedef {{ narrowest: number, room: number, selection: number }} Limits the narrowest window, the least room beside everything, the least selection */

/** Return the stretch between two moments, in whichever order they are. */
export const between = (/** @type {number} */ a, /** @type {number} */ b) => ({
  from: Math.min(a, b),
  to: Math.max(a, b),
});

/** Return a window moved by `time`. */
export const moved = (/** @type {Stretch} */ { from, to }, /** @type {number} */ time) => ({
  from: from + time,
  to: to + time,
});

/** Return a window that is `factor` times as wide; the moment `center` stays where it is. */
export const zoomed = (
  /** @type {Stretch} */ { from, to },
  /** @type {number} */ factor,
  center = (from + to) / 2,
) => ({
  from: center - (center - from) * factor,
  to: center + (to - center) * factor,
});

/**
 * Return the window as near as may be: neither too narrow, nor further than half of everything beside it.
 *
 * @param {Stretch} window
 * @param {Stretch} extent
 * @param {Limits} limits
 */
export function fitted(window, { from, to }, limits) {
  const room = Math.max((to - from) * 0.5, limits.room);
  const width = Math.min(Math.max(window.to - window.from, limits.narrowest), to - from + 2 * room);
  const center = (window.from + window.to) / 2;
  const start = Math.min(Math.max(center - width / 2, from - room), to + room - width);
  return { from: start, to: start + width };
}

/**
 * Return the ticks in a window: multiples of `step`, counted from `zero`.
 *
 * @param {Stretch} window
 * @param {number} zero
 * @param {number} step
 */
export function ticks({ from, to }, zero, step) {
  const found = [];
  for (let n = Math.ceil((from - zero) / step); n * step + zero <= to; n += 1) found.push(n * step);
  return found;
}
