/** Draws charts over several frames: in each as many as fit into a share of it, so that a page scrolls while it draws. */

const SHARE_MS = 6; // of a frame of 16.7 ms; one chart is drawn in any case

/** @typedef {{ isSeen: boolean, needs: string, draw: () => void }} Drawable */

class DrawQueue {
  /** @type {Set<Drawable>} */
  #waiting = new Set();
  #frame = 0;

  /** Draw it soon, once, unless it can no longer be seen then. */
  add(/** @type {Drawable} */ chart) {
    this.#waiting.add(chart);
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  delete(/** @type {Drawable} */ chart) {
    this.#waiting.delete(chart);
  }

  #draw() {
    this.#frame = 0;
    const end = performance.now() + SHARE_MS;
    for (const chart of this.#waiting) {
      this.#waiting.delete(chart);
      if (!chart.isSeen || !chart.needs) continue;
      chart.draw();
      if (performance.now() > end) break;
    }
    if (this.#waiting.size) this.#frame ||= requestAnimationFrame(() => this.#draw());
  }
}

export const drawQueue = new DrawQueue();
