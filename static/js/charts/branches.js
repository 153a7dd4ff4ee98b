/** Which steps of which attempt belong to the run's one history, as the header's attempts say; the rest are dead branches. */

/**
 * @typedef {object} Attempt as the run's header has it
 * @property {number} number
 * @property {number | null} visible_through null: all of it, -1: nothing
 * @property {number | null} resume_attempt
 * @property {number} resume_step where there is one to resume
 * @property {number} step
 */
/** @typedef {{ attempt: number, kind?: string, x: ArrayLike<number> }} Part of a series, by one attempt */

export class Branches {
  constructor(/** @type {Attempt[]} */ attempts = []) {
    this.attempts = attempts;
    this.limits = new Map(attempts.map((one) => [one.number, one.visible_through ?? Infinity]));
    this.signature = attempts.map((one) => `${one.number}:${one.visible_through}`).join();
  }

  /** Return the last step of an attempt that counts: Infinity for all, -1 for none. */
  through(/** @type {number} */ attempt) {
    return this.limits.get(attempt) ?? Infinity;
  }

  /** Return true if this step of this attempt was resumed past. */
  isDead(/** @type {number} */ attempt, /** @type {number} */ step) {
    const through = this.through(attempt);
    return through < 0 || step > through;
  }

  /** Whether an attempt got further than its part of the history. */
  get hasDead() {
    return this.attempts.some((one) => one.visible_through !== null && one.step > Math.max(one.visible_through, 0));
  }

  /** Return the steps at which the history goes on from a checkpoint, with the attempt that does. */
  get resumes() {
    return this.attempts
      .filter(
        (one) => one.resume_attempt !== null && (one.visible_through === null || one.visible_through > one.resume_step),
      )
      .map((one) => ({ step: one.resume_step, attempt: one.number }));
  }

  /**
   * Split series of one metric, one per attempt, each with rising `x`, by attempt: { clean: [{ series, count, isCut }], dead: [{
   * series, from }] }. The first `count` points of a clean one belong to the history (`isCut`: it may have more elsewhere). A dead
   * one begins at `from`, with the point that it left the history at. Where two attempts have a point at one step, the later one's
   * counts. Time is never cut.
   *
   * @template {Part} P
   * @param {P[]} found
   */
  split(found) {
    const sorted = [...found].sort((a, b) => b.attempt - a.attempt);
    /** @type {{ series: P, count: number, isCut: boolean }[]} */
    const clean = [];
    /** @type {{ series: P, from: number }[]} */
    const dead = [];
    const later = new Set(); // x of later attempts
    for (const series of sorted) {
      const { x } = series;
      const through = series.kind === "system" ? Infinity : this.through(series.attempt);
      let count = x.length;
      if (through !== Infinity) {
        while (count > 0 && (through < 0 || x[count - 1] > through)) count -= 1;
        const kept = count;
        while (count > 0 && later.has(x[count - 1])) count -= 1;
        if (kept < x.length) dead.unshift({ series, from: Math.max(kept - 1, 0) });
      }
      if (count > 0 || through === Infinity) clean.unshift({ series, count, isCut: through !== Infinity });
      if (sorted.length > 1) for (let i = 0; i < count; i += 1) later.add(x[i]);
    }
    return { clean, dead };
  }
}

/** All attempts count: what is known of them before a header came. */
export const EVERYTHING = new Branches();
