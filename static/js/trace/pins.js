/**
 * Which lanes are pinned above all others, and in which order: in the address, so that a link shows the same; and in this browser, by
 * project and the lanes' own names, so that the next trace of the project opens with the same lanes on top.
 */

/** @import { Query } from "../query.js" */
/** @import { Group, Layout } from "./layout.js" */

const MOST = 24; // kept of a project

/** Return what a lane is called in every trace of a project. */
const nameOf = (/** @type {{ kind: string, title: string }} */ { kind, title }) => `${kind} ${title}`;

export class Pins {
  /**
   * @param {object} parts
   * @param {Layout} parts.layout
   * @param {Query} parts.query
   * @param {string} parts.project
   * @param {Pick<Storage, "getItem" | "setItem">} [parts.storage]
   */
  constructor({ layout, query, project, storage = localStorage }) {
    this.layout = layout;
    this.query = query;
    this.storage = storage;
    this.place = `pitwall-pinned-lanes-${project}`;
    const given = query.get("pin");
    this.isGiven = given !== null;
    if (given) layout.pinned = given.split(",").filter((key) => key && key !== "none");
    /** @type {Set<string>} */
    this.known = new Set(); // lanes that were looked at
  }

  /** Return the names that this browser keeps for the project; [] where it keeps nothing. */
  get names() {
    try {
      const kept = JSON.parse(this.storage.getItem(this.place) ?? "[]");
      return Array.isArray(kept) ? kept.map(String) : [];
    } catch {
      return [];
    }
  }

  /** Pin lanes that have come and are called like those of another trace, unless the address says which. */
  know(/** @type {Group[]} */ groups) {
    if (this.isGiven) return;
    const { layout, names } = this;
    const fresh = groups.flatMap(({ lanes }) => lanes).filter(({ key }) => !this.known.has(key));
    for (const name of names) {
      const lane = fresh.find((one) => nameOf(one) === name);
      if (lane && !layout.pinned.includes(lane.key)) layout.pinned.push(lane.key);
    }
    for (const { key } of fresh) this.known.add(key);
  }

  /** Write down what is pinned now. */
  keep() {
    const { layout, query } = this;
    const isChanged = layout.pinned.join(",") !== (query.get("pin") ?? "").replace("none", "");
    if (!isChanged) return;
    this.isGiven = true;
    query.set("pin", layout.pinned.join(",") || "none");
    const lanes = new Map(layout.groups.flatMap((group) => group.lanes).map((lane) => [lane.key, lane]));
    const names = layout.pinned.flatMap((key) => lanes.get(key) ?? []).map(nameOf);
    try {
      this.storage.setItem(this.place, JSON.stringify([...new Set(names)].slice(0, MOST)));
    } catch {
      // a browser that keeps nothing: the address still does
    }
  }
}
