/** The marks of a run's health: which symptom, from which step to which. Read anew when the run's header says so. */

import { get } from "../api.js";
import { fill, gettext } from "../format.js";

export class Health extends EventTarget {
  constructor({ page }) {
    super();
    this.page = page;
    this.list = [];
    this.turn = 0;
    this.hasChanged = false; // since it was read before
  }

  /** The run's header changed: it counts what pages cannot learn from frames. */
  update(header) {
    const isNew = this.changes !== header.capture_changes;
    this.changes = header.capture_changes;
    this.step = header.step;
    if (isNew) this.load();
  }

  async load() {
    const turn = ++this.turn;
    try {
      const { marks } = await get(`${this.page.api}/health`);
      if (turn !== this.turn) return;
      const wasKnown = this.key !== undefined;
      const key = marks.map((mark) => `${mark.finding}:${mark.begin_step}-${mark.end_step}`).join();
      this.hasChanged = wasKnown && key !== this.key;
      this.key = key;
      this.list = marks;
      this.dispatchEvent(new Event("change"));
    } catch {
      // What is there stays; the offline notice says why.
    }
  }

  /** Return lines for the history. */
  events() {
    return this.list.map(({ began_at: at, title, begin_step: step, tone }) => ({ at, verb: tone, text: title, step }));
  }

  /** Return what charts draw; what holds still reaches to the newest step. */
  marks() {
    return this.list.map((one) => ({
      x: one.begin_step,
      to: one.end_step ?? Math.max(this.step ?? 0, one.begin_step),
      type: one.tone,
      text: one.end_step
        ? fill(gettext("%(title)s, steps %(first)s–%(last)s"), {
            title: one.title,
            first: one.begin_step,
            last: one.end_step,
          })
        : fill(gettext("%(title)s, since step %(first)s"), { title: one.title, first: one.begin_step }),
    }));
  }
}
