/** The critical path of a window as a lane above all others. */

import { get } from "../api.js";
import { find } from "../dom.js";
import { fill, gettext, messageOf } from "../format.js";
import { toast } from "../toast.js";
import { windowOf } from "./facts.js";
import { CATEGORIES } from "./palette.js";
import { EventRow } from "./rows.js";
import { span } from "./times.js";

const SOON_MS = 400;
const LANE = "critical-path";

export class CriticalPath {
  /** `onChange` is told when there is another group, or none. */
  constructor({ page, view, clock, query, layers, onChange }) {
    this.page = page;
    this.view = view;
    this.clock = clock;
    this.query = query;
    this.onChange = onChange;
    /** @type {string[] | null} */
    this.given = null; // by the address
    this.group = null;
    this.turn = 0;
    this.waiting = 0;
    this.button = find('button[data-action="path"]');
    this.button.addEventListener("click", () => this.#press());
    view.addEventListener("selection", () => {
      if (!this.isOn || !view.selection) return;
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.#load(windowOf(view)), SOON_MS);
    });
    const [from, to] = (query.get("path") ?? "").split("-");
    if (/^\d{1,20}$/.test(from) && /^\d{1,20}$/.test(to ?? "")) this.given = [from, to];
    layers.addEventListener("layer", () => this.#restore());
  }

  get isOn() {
    return this.button.getAttribute("aria-pressed") === "true";
  }

  /** Show the path that the address names. */
  #restore() {
    if (!this.given) return;
    const [from, to] = this.given.map((moment) => this.clock.offset(moment));
    this.button.setAttribute("aria-pressed", "true");
    this.#load({ from, to });
  }

  #press() {
    this.given = null;
    this.button.setAttribute("aria-pressed", String(!this.isOn));
    if (this.isOn) this.#load(windowOf(this.view));
    else this.#show(null);
  }

  async #load({ from, to }) {
    this.turn += 1;
    const { turn } = this;
    const [begin, end] = [this.clock.absolute(from), this.clock.absolute(Math.max(to, from + 1))];
    try {
      const answer = await get(`${this.page.api}/critical-path?from=${begin}&to=${end}`);
      if (turn !== this.turn || !this.isOn) return;
      this.#show(answer);
      this.query.set("path", `${begin}-${end}`);
    } catch (error) {
      if (turn !== this.turn) return;
      toast(messageOf(error), { isError: true });
      this.button.setAttribute("aria-pressed", "false");
      this.#show(null);
    }
  }

  #show(answer) {
    if (!answer) this.turn += 1;
    if (!answer) this.query.set("path", "");
    this.group = answer && groupOf(answer, this.clock);
    this.onChange();
  }
}

/** Return a path as a group of one lane. */
function groupOf({ segments, device_share: share }, clock) {
  const names = new Map();
  /** @type {{ names: string[], cats: number[], labels: string[] }} */
  const table = { names: [], cats: [], labels: [] };
  const number = ({ what, name, short, category }) => {
    const key = `${what}|${category}|${name}`;
    if (!names.has(key)) {
      names.set(key, table.names.length);
      table.names.push(what === "gap" ? gettext("waits, for what was not recorded") : name);
      table.labels.push(what === "launch" ? fill(gettext("launch: %(name)s"), { name: short }) : short);
      table.cats.push(Math.max(CATEGORIES.indexOf(what === "launch" ? "overhead" : category), 0));
    }
    return names.get(key);
  };
  const start = Float64Array.from(segments, ({ begin }) => clock.offset(begin));
  const row = new EventRow({
    start,
    end: Float64Array.from(segments, ({ duration }, i) => start[i] + duration),
    name: Uint32Array.from(segments, number),
    id: new Float64Array(segments.length).fill(-1),
    table,
  });
  const whole = segments.reduce((sum, { duration }) => sum + duration, 0);
  const text = gettext("%(time)s, %(share)s of it on devices");
  return {
    key: "critical",
    title: gettext("Critical path"),
    note: segments.length ? fill(text, { time: span(whole), share: `${Math.round(share * 100)} %` }) : gettext("empty"),
    lanes: [{ key: LANE, title: gettext("waited for"), kind: "phase", depths: 1, rows: [row] }],
  };
}
