/** Exponential moving average whose start is not pulled to zero (debiased). Values that are not finite are left as they are. */

/**
 * Return the smoothed values of `ys`; `weight` in [0, 1) is the share of the past. Source: Adam's bias correction.
 *
 * @param {(number | null)[]} ys
 * @param {number} weight
 */
export function smooth(ys, weight) {
  if (weight <= 0) return ys;
  const state = { sum: 0, mass: 0 };
  return Array.from(ys, (y) => advance(state, y, weight));
}

/**
 * Move `state` on by one value and return the smoothed one.
 *
 * @param {{ sum: number, mass: number }} state
 * @param {number | null} y
 * @param {number} weight
 */
export function advance(state, y, weight) {
  if (y === null || !Number.isFinite(y)) return y;
  state.sum = weight * state.sum + (1 - weight) * y;
  state.mass = weight * state.mass + (1 - weight);
  return state.sum / state.mass;
}
