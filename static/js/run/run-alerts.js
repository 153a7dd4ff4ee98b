/** The alerts about a run, as marks of its charts and lines of its history. Read anew when the run's header says so. */

import { get } from "../api.js";

const MOST = 200;

export class RunAlerts extends EventTarget {
  constructor({ page }) {
    super();
    this.page = page;
    /** @type {import("../charts/run-marks.js").Alert[]} */
    this.list = [];
    this.turn = 0;
  }

  /** The run's header changed: it counts what pages cannot learn from frames. */
  update(header) {
    const isNew = this.changes !== undefined && this.changes !== header.capture_changes;
    this.changes = header.capture_changes;
    if (isNew) this.load();
  }

  async load() {
    const turn = ++this.turn;
    const query = new URLSearchParams({
      project: this.page.project,
      run: this.page.id,
      state: "all",
      size: String(MOST),
    });
    try {
      const { alerts } = await get(`/api/alerts?${query}`);
      if (turn !== this.turn) return;
      this.list = alerts;
      this.dispatchEvent(new Event("change"));
    } catch {
      // What is there stays; the offline notice says why.
    }
  }

  /** Return lines for the history. */
  events() {
    return this.list.map(({ opened_at: at, title, step }) => ({ at, verb: "alert", text: title, step }));
  }
}
