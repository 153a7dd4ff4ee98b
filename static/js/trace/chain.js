/** What the chosen event is linked with, to the end of the chain, read for the arrows. */

import { get } from "../api.js";

export class Chain {
  turn = 0;

  constructor({ page, view, clock }) {
    this.api = page.api;
    this.view = view;
    this.clock = clock;
    view.addEventListener("chosen", () => this.#load());
  }

  async #load() {
    const { view } = this;
    const event = view.chosen;
    this.turn += 1;
    const { turn } = this;
    view.arrows = [];
    if (!event || event.layer === null || event.id < 0) return;
    try {
      const { arrows } = await get(`${this.api}/layers/${event.layer}/events/${event.id}/arrows`);
      if (turn !== this.turn) return;
      view.arrows = arrows.map((one) => ({
        kind: one.kind,
        source: this.#place(one.source),
        target: this.#place(one.target),
      }));
      view.draw();
    } catch {
      // the details say what is wrong
    }
  }

  #place({ layer, lane, depth, begin, duration }) {
    const start = this.clock.offset(begin);
    return { laneKey: `${layer}.${lane}`, depth, begin: start, end: start + duration };
  }
}
