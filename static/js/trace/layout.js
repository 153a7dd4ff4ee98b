/** Which lanes are where: groups (the run's phases, then each process of each file), lanes in them, rows by depth. Only what is in sight is drawn. */

/** @import { Item, LaneItem } from "../timeline/layout.js" */
/** @import { EventRow } from "./rows.js" */
/** @import { Tiles } from "./tiles.js" */
/** @typedef {{ key: string, title: string, kind: string, depths: number }} AnyLane */
/** @typedef {AnyLane & { rows: (EventRow | undefined)[], tiles?: undefined, events?: undefined, layer?: undefined }} PhaseLane all events, by depth */
/** @typedef {AnyLane & { rows?: undefined, id: number, events: number, layer: number, tiles: Tiles, block: number }} FileLane */
/** @typedef {PhaseLane | FileLane} Lane */
/** @typedef {{ key: string, title: string, note: string, layer?: number, lanes: Lane[] }} Group */
/**
 * @typedef {Item & { type: "group", group: Group, lane?: undefined, isFolded: boolean }} Head
 * @typedef {LaneItem & { type: "lane", group: Group, lane: Lane, rows: number, isFolded: boolean }} Body
 */

const HEAD = 22;
const ROW = { phase: 18, event: 14 };
const GAP = 4;
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
    /** @type {(Head | Body)[]} */
    this.items = [];
    this.height = 0;
  }

  /** Take these groups and place them. */
  setGroups(/** @type {Group[]} */ groups) {
    this.groups = groups;
    this.place();
  }

  place() {
    this.items = [];
    let y = 0;
    for (const group of this.groups) {
      const lanes = group.lanes.filter((lane) => !this.hidden.has(lane.key));
      if (!lanes.length) continue;
      const isFolded = this.folded.has(group.key);
      this.items.push({ type: "group", group, y, height: HEAD, isFolded });
      y += HEAD;
      if (isFolded) continue;
      for (const lane of lanes) {
        const rows = this.rows(lane);
        const rowHeight = lane.kind === "phase" ? ROW.phase : ROW.event;
        const height = rows * (rowHeight + 1) + GAP;
        const sizes = { y, height, rowHeight, detailHeight: rowHeight };
        this.items.push({ type: "lane", lane, group, ...sizes, rows, isFolded: this.folded.has(lane.key) });
        y += height;
      }
    }
    this.height = y;
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

  show(/** @type {string} */ key, /** @type {boolean} */ isShown) {
    if (isShown) this.hidden.delete(key);
    else this.hidden.add(key);
    this.place();
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
    this.folded.delete(group.key);
    this.hidden.delete(key);
    if (depth > 0) this.folded.delete(key);
    if (depth >= USUAL_DEPTHS) this.deep.add(key);
    this.place();
    const found = this.items.find((item) => item.lane?.key === key);
    return found?.type === "lane" ? found : null;
  }
}
