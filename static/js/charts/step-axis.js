/** Where a run's steps stand on an x axis, as the console answers it: straight between the steps it names. */

export class StepAxis {
  /**
   * @param {number[]} steps rising
   * @param {number[]} places rising, how far the run had come when each step ended
   */
  constructor(steps, places) {
    this.steps = steps;
    this.places = places;
  }

  get isKnown() {
    return this.steps.length > 0;
  }

  /** Return the place of a step; 0 before the first one, null after the last one that is known. */
  place(/** @type {number} */ step) {
    const { steps, places } = this;
    if (!steps.length || step > steps[steps.length - 1]) return null;
    if (step < steps[0]) return 0;
    let [low, high] = [0, steps.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (steps[middle] <= step) low = middle;
      else high = middle - 1;
    }
    if (steps[low] === step) return places[low];
    return places[low] + ((places[low + 1] - places[low]) * (step - steps[low])) / (steps[low + 1] - steps[low]);
  }
}

/** Return the first whole step of 0 … last whose place is at least `wanted`; `last` without one. `place` rises. */
export function stepFrom(
  /** @type {(step: number) => number | null} */ place,
  /** @type {number} */ wanted,
  /** @type {number} */ last,
) {
  let [low, high] = [0, Math.max(0, last)];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((place(middle) ?? Infinity) >= wanted) high = middle;
    else low = middle + 1;
  }
  return low;
}
