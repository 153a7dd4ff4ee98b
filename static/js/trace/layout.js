/**
 * Which lanes are where: those that are pinned, then groups (the run's phases, then each process of each file), lanes in them, rows by
 * depth. Only what is in sight is drawn.
 */

import { fill, gettext } from "../format.js";
import { rowTop } from "../timeline/layout.js";

/** @import { Item, LaneItem } from "../timeline/layout.js" */
/** @import { EventRow } from "./rows.js" */
/** @import { Tiles } from "./tiles.js" */
/** @typedef {{ key: string, title: string, kind: string, depths: number, isQuiet?: boolean, isStack?: boolean }} AnyLane a quiet one is folded until it is opened; a stack holds frames of Python */
/** @typedef {AnyLane & { rows: (EventRow | undefined)[], tiles?: undefined, events?: undefined, layer?: undefined }} PhaseLane all events, by depth */
/** @typedef {AnyLane & { rows?: undefined, id: number, events: number, layer: number, tiles: Tiles, block: number }} FileLane */
/** @typedef {PhaseLane | FileLane} Lane */
/** @typedef {{ key: string, title: string, note: string, layer?: number, lanes: Lane[] }} Group */
/**
 * @typedef {Item & { type: "group", group: Group, lane?: undefined, isFolded: boolean }} Head
 * @typedef {LaneItem & { type: "lane", group: Group, lane: Lane, title: string, rows: number, isFolded: boolean, isPinned: boolean, more: number }} Body
 *   `more` rows lie below a handle at its lower edge; below 0: all are shown, and the handle hides so many
 */

const HEAD = 22;
const ROW = { phase: 18, event: 14 };
const GAP = 4;
export const HANDLE = 12;
const PINNED = "pinned"; // the key of the group of pinned lanes
const USUAL_DEPTHS = 8; // of a lane; one that is deeper shows all of them on request

export class Layout {
  constructor() {
    /** @type {Group[]} */
    this.groups = [];
    /** @type {Set<string>} */
    this.folded = new Set(); // keys of groups and lanes that show one line only
    /** @type {Set<string>} */
    this.hidden = new Set(); // keys of lanes
    /** @type {Set<string>} */
    this.deep = new Set(); // keys of lanes with all their rows
    /** @type {string[]} */
    this.pinned = []; // keys of lanes that stand above all groups, in this order
    /** @type {string[]} */
    this.order = []; // keys of lanes of groups that people have put in another order than they come in
    /** @type {(Head | Body)[]} */
    this.items = [];
    this.height = 0;
    this.isRestored = false; // `folded` is from an address
    /** @type {Set<string>} */
    this.met = new Set(); // keys of lanes that were placed once
  }

  /** Take these groups and place them. */
  setGroups(/** @type {Group[]} */ groups) {
    this.groups = groups;
    for (const { key, isQuiet } of groups.flatMap(({ lanes }) => lanes)) {
      if (isQuiet && !this.met.has(key) && !this.isRestored) this.folded.add(key);
      this.met.add(key);
    }
    this.place();
  }

  place() {
    this.items = [];
    this.height = 0;
    this.#placePinned();
    const pinned = new Set(this.pinned);
    for (const group of this.groups) {
      const lanes = this.lanesOf(group).filter(({ key }) => !this.hidden.has(key) && !pinned.has(key));
      if (lanes.length && this.#placeHead(group)) for (const lane of lanes) this.#placeLane(group, lane);
    }
  }

  /** Place the pinned lanes that are there, in the order in which people have put them. */
  #placePinned() {
    const found = this.pinned.flatMap((key) => {
      const group = this.groups.find(({ lanes }) => lanes.some((lane) => lane.key === key));
      const lane = group?.lanes.find((one) => one.key === key);
      return group && lane && !this.hidden.has(key) ? [{ group, lane }] : [];
    });
    if (!found.length) return;
    const head = { key: PINNED, title: gettext("Pinned"), note: "", lanes: found.map(({ lane }) => lane) };
    if (this.#placeHead(head)) for (const { group, lane } of found) this.#placeLane(group, lane, true);
  }

  /** Place the head of a group; returns whether its lanes are to be seen. */
  #placeHead(/** @type {Group} */ group) {
    const isFolded = this.folded.has(group.key);
    this.items.push({ type: "group", group, y: this.height, height: HEAD, isFolded });
    this.height += HEAD;
    return !isFolded;
  }

  #placeLane(/** @type {Group} */ group, /** @type {Lane} */ lane, isPinned = false) {
    const rows = this.rows(lane);
    const isFolded = this.folded.has(lane.key);
    const usual = Math.min(lane.depths, USUAL_DEPTHS);
    const more = isFolded ? 0 : rows < lane.depths ? lane.depths - rows : usual - rows;
    const rowHeight = lane.kind === "phase" ? ROW.phase : ROW.event;
    const height = rows * (rowHeight + 1) + (more ? HANDLE : 0) + GAP;
    const title = isPinned
      ? fill(gettext("%(lane)s, %(process)s"), { lane: lane.title, process: group.title })
      : lane.title;
    const sizes = { y: this.height, height, rowHeight, detailHeight: rowHeight };
    this.items.push({ type: "lane", lane, group, title, ...sizes, rows, isFolded, isPinned, more });
    this.height += height;
  }

  /** Return how many rows of a lane are shown. */
  rows(/** @type {Lane} */ lane) {
    if (this.folded.has(lane.key)) return 1;
    return this.deep.has(lane.key) ? lane.depths : Math.min(lane.depths, USUAL_DEPTHS);
  }

  /** Fold or unfold a group or a lane; a lane that is deeper than usual opens fully before it folds. */
  toggle(/** @type {Head | Body} */ item) {
    const { key } = item.lane ?? item.group;
    if (item.lane && item.lane.depths > USUAL_DEPTHS && !this.folded.has(key) && !this.deep.has(key))
      this.deep.add(key);
    else if (this.folded.has(key)) this.folded.delete(key);
    else {
      this.deep.delete(key);
      this.folded.add(key);
    }
    this.place();
  }

  /** Show all rows of a lane, or as many as usual. */
  toggleRows(/** @type {string} */ key) {
    if (!this.deep.delete(key)) this.deep.add(key);
    this.place();
  }

  /** Pin a lane below those that are pinned, or let it go back to its group. */
  pin(/** @type {string} */ key, isPinned = !this.pinned.includes(key)) {
    this.pinned = this.pinned.filter((one) => one !== key);
    if (isPinned) this.pinned.push(key);
    this.place();
  }

  /** Return the lanes of a group in the order in which people have put them; others, after these, as they come. */
  lanesOf(/** @type {Group} */ { lanes }) {
    if (!this.order.length) return lanes;
    const places = new Map(this.order.map((key, i) => [key, i]));
    const placeOf = (/** @type {Lane} */ { key }) => places.get(key) ?? places.size;
    return lanes.toSorted((a, b) => placeOf(a) - placeOf(b));
  }

  /** Move a lane up (-1) or down (1) among those in sight of its group, or among the pinned ones. */
  move(/** @type {string} */ key, /** @type {number} */ by) {
    if (this.pinned.includes(key)) return this.#movePinned(key, by);
    const group = this.groups.find(({ lanes }) => lanes.some((lane) => lane.key === key));
    if (!group) return;
    const keys = this.lanesOf(group).map((lane) => lane.key);
    const at = keys.indexOf(key);
    let to = at + by;
    while (this.hidden.has(keys[to]) || this.pinned.includes(keys[to])) to += by;
    if (!(to in keys)) return;
    keys.splice(at, 1);
    keys.splice(to, 0, key);
    this.order = [...this.order.filter((one) => !keys.includes(one)), ...keys];
    this.place();
  }

  #movePinned(/** @type {string} */ key, /** @type {number} */ by) {
    const at = this.pinned.indexOf(key);
    if (at < 0) return;
    this.pinned.splice(at, 1);
    this.pinned.splice(Math.max(at + by, 0), 0, key);
    this.place();
  }

  show(/** @type {string} */ key, /** @type {boolean} */ isShown) {
    if (isShown) this.hidden.delete(key);
    else this.hidden.add(key);
    this.place();
  }

  /**
   * Return how far below the top of all lanes the middle of an event's bar is; that of its lane's last row, or of the head above it,
   * where it is folded away; null where it is hidden.
   *
   * @param {{ laneKey: string, depth: number }} place
   */
  middleOf({ laneKey, depth }) {
    const item = this.items.find((one) => one.lane?.key === laneKey);
    if (item?.type === "lane") return rowTop(item, Math.min(depth, item.rows - 1)) + item.rowHeight / 2;
    if (this.hidden.has(laneKey)) return null;
    const group = this.groups.find(({ lanes }) => lanes.some(({ key }) => key === laneKey));
    const head = this.items.find((one) => one.type === "group" && one.group.key === group?.key);
    return head ? head.y + head.height / 2 : null;
  }

  /**
   * Return the item of a lane, unfolded so far that `depth` is in sight, or null.
   *
   * @param {string} key
   * @returns {Body | null}
   */
  reveal(key, depth = 0) {
    const group = this.groups.find(({ lanes }) => lanes.some((lane) => lane.key === key));
    if (!group) return null;
    this.folded.delete(this.pinned.includes(key) ? PINNED : group.key);
    this.hidden.delete(key);
    if (depth > 0) this.folded.delete(key);
    if (depth >= USUAL_DEPTHS) this.deep.add(key);
    this.place();
    const found = this.items.find((item) => item.lane?.key === key);
    return found?.type === "lane" ? found : null;
  }
}
