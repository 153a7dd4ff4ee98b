/**
 * The tiles of one layer: what is on the screen is fetched once the view rests, nearest first; until then what is known already
 * is drawn in its place, scaled. A tile that holds its events exactly serves every closer view.
 */

import { COLUMNS, Tile } from "./tile.js";

const AT_ONCE = 4;
const MOST_BYTES = 96 << 20; // kept, of all layers
const MOST_ROWS = 96; // of a block of lanes
const UP = 24;
const AGAIN_MS = 3000; // after this a tile that could not be fetched is asked for again, and after twice as long each time, up to
const LONGEST_MS = 60_000;
const FINAL = [403, 404, 422]; // asked again, the answer is the same

/** A tile that the console did not give. */
class Refused extends Error {
  /** @param {number} status of the answer */
  constructor(status) {
    super(String(status));
    this.status = status;
  }
}

/** @typedef {{ tiles: Tiles, key: string, url: string, hasOther?: boolean }} Wanted a tile that is not here, and whether another one stands in its place */

/** What all layers of the page share: few requests at a time, those of the latest view first. */
export class Loader {
  constructor(/** @type {() => void} */ onLoad) {
    this.onLoad = onLoad;
    this.running = 0;
    this.failed = 0; // that wait to be asked for again
    /** @type {Wanted[]} */
    this.queue = [];
    this.bytes = 0;
    /** @type {Map<Tile, [tiles: Tiles, key: string]>} */
    this.used = new Map(); // the least recently used first
    /** @type {(isProblem: boolean, isFinal?: boolean) => void} */
    this.onProblem = () => {};
  }

  /** Replace what waits. */
  want(/** @type {Wanted[]} */ wanted) {
    this.queue = wanted;
    this.#next();
  }

  get isIdle() {
    return this.running === 0 && this.failed === 0 && this.queue.length === 0;
  }

  #next() {
    while (this.running < AT_ONCE && this.queue.length) {
      const [wanted] = this.queue.splice(0, 1);
      if (!wanted.tiles.known.has(wanted.key) && !wanted.tiles.pending.has(wanted.key)) this.#fetch(wanted);
    }
  }

  async #fetch(/** @type {Wanted} */ { tiles, key, url }) {
    this.running += 1;
    tiles.pending.add(key);
    try {
      const answer = await fetch(url, { credentials: "same-origin" });
      if (!answer.ok) throw new Refused(answer.status);
      const tile = new Tile(await answer.arrayBuffer(), tiles.origin);
      tiles.known.set(key, tile);
      tiles.failed.delete(key);
      this.#keep(tiles, key, tile);
      this.onProblem(false);
    } catch (error) {
      const isFinal = error instanceof Refused && FINAL.includes(error.status);
      this.onProblem(true, isFinal);
      this.#later(
        tiles,
        key,
        isFinal ? Infinity : Math.min((tiles.failed.get(key)?.wait ?? AGAIN_MS / 2) * 2, LONGEST_MS),
      );
    } finally {
      this.running -= 1;
      tiles.pending.delete(key);
      this.onLoad();
      this.#next();
    }
  }

  /** Let it be asked for again after `wait` ms. */
  #later(/** @type {Tiles} */ tiles, /** @type {string} */ key, /** @type {number} */ wait) {
    tiles.failed.set(key, { wait, until: performance.now() + wait });
    if (wait === Infinity) return;
    this.failed += 1;
    setTimeout(() => {
      this.failed -= 1;
      this.onLoad();
    }, wait + 50);
  }

  #keep(/** @type {Tiles} */ tiles, /** @type {string} */ key, /** @type {Tile} */ tile) {
    this.bytes += tile.bytes;
    this.used.set(tile, [tiles, key]);
    for (const [old, [whose, which]] of this.used) {
      if (this.bytes <= MOST_BYTES) break;
      this.used.delete(old);
      whose.known.delete(which);
      this.bytes -= old.bytes;
    }
  }

  /** A tile was drawn: it goes last. */
  touch(/** @type {Tile} */ tile) {
    const entry = this.used.get(tile);
    if (!entry) return;
    this.used.delete(tile);
    this.used.set(tile, entry);
  }
}

/** Tiles of one layer, by block of lanes. */
export class Tiles {
  /**
   * @param {object} layer
   * @param {string} layer.url
   * @param {number | string} layer.made when it was imported
   * @param {number} layer.origin in ns after the trace's
   * @param {{ id: number, depths: number }[]} layer.lanes
   */
  constructor({ url, made, origin, lanes }) {
    this.url = url;
    this.made = made;
    this.origin = origin;
    /** @type {Map<string, Tile>} by "block/level/index", like the next two */
    this.known = new Map();
    /** @type {Set<string>} */
    this.pending = new Set();
    /** @type {Map<string, { wait: number, until: number }>} in ms */
    this.failed = new Map();
    this.blocks = blocksOf(lanes);
    /** @type {Map<number, number>} */
    this.blockOf = new Map();
    for (const [i, block] of this.blocks.entries()) for (const lane of block) this.blockOf.set(lane, i);
  }

  /** Return the level at which a column is at least a pixel wide. */
  static level(/** @type {number} */ nsPerPixel) {
    return Math.min(Math.max(Math.ceil(Math.log2(nsPerPixel) - 0.1), 0), 50);
  }

  /**
   * Return tiles that cover [from, to] for a block, the best that is known; what is missing is added to `missing`.
   *
   * @param {number} block
   * @param {number} from
   * @param {number} to
   * @param {number} level
   * @param {Wanted[] | null} missing
   * @returns {{ tile: Tile, from: number, to: number }[]}
   */
  cover(block, from, to, level, missing) {
    const width = 2 ** level * COLUMNS;
    const first = Math.max(Math.floor((from - this.origin) / width), 0);
    const last = Math.max(Math.floor((to - this.origin) / width), 0);
    const found = [];
    for (let index = first; index <= last; index += 1) {
      const begin = this.origin + index * width;
      const part = { from: Math.max(begin, from), to: Math.min(begin + width, to) };
      const own = this.known.get(key(block, level, index));
      if (own) {
        found.push({ tile: own, ...part });
        continue;
      }
      const { tile, isExact } = this.#coarser(block, level, index);
      if (!isExact && missing) this.#miss(block, level, index, missing, Boolean(tile));
      if (tile) found.push({ tile, ...part });
      else found.push(...this.#finer(block, level, index, part));
    }
    return found;
  }

  /**
   * Ask for a tile, unless it is on its way or was refused just now.
   *
   * @param {number} block
   * @param {number} level
   * @param {number} index
   * @param {Wanted[]} missing
   * @param {boolean} hasOther
   */
  #miss(block, level, index, missing, hasOther) {
    const id = key(block, level, index);
    if (this.pending.has(id) || performance.now() < (this.failed.get(id)?.until ?? 0)) return;
    const lanes = this.blocks.length > 1 ? `&lanes=${this.blocks[block].join(",")}` : "";
    missing.push({
      tiles: this,
      key: id,
      url: `${this.url}/tiles/${level}/${index}?made=${this.made}${lanes}`,
      hasOther,
    });
  }

  /**
   * Return the nearest coarser tile that covers a place; an exact one is as good as the one asked for.
   *
   * @param {number} block
   * @param {number} level
   * @param {number} index
   */
  #coarser(block, level, index) {
    /** @type {Tile | null} */
    let nearest = null;
    for (let up = 1; up <= UP; up += 1) {
      const tile = this.known.get(key(block, level + up, Math.floor(index / 2 ** up)));
      if (tile?.isExact) return { tile, isExact: true };
      nearest ??= tile ?? null;
    }
    return { tile: nearest, isExact: false };
  }

  /**
   * Return finer tiles that lie in a place.
   *
   * @param {number} block
   * @param {number} level
   * @param {number} index
   * @param {{ from: number, to: number }} part
   */
  #finer(block, level, index, { from, to }) {
    const found = [];
    for (let down = 1; down <= 3 && !found.length && level >= down; down += 1) {
      const width = 2 ** (level - down) * COLUMNS;
      for (let i = index * 2 ** down; i < (index + 1) * 2 ** down; i += 1) {
        const tile = this.known.get(key(block, level - down, i));
        const begin = this.origin + i * width;
        if (tile && begin < to && begin + width > from)
          found.push({ tile, from: Math.max(begin, from), to: Math.min(begin + width, to) });
      }
    }
    return found;
  }
}

const key = (/** @type {number} */ block, /** @type {number} */ level, /** @type {number} */ index) =>
  `${block}/${level}/${index}`;

/** Return the lanes in blocks of so many rows, always the same for a layer: what was fetched once is used again. */
function blocksOf(/** @type {{ id: number, depths: number }[]} */ lanes) {
  /** @type {number[][]} */
  const blocks = [];
  let rows = Infinity;
  for (const lane of lanes) {
    if (rows + lane.depths > MOST_ROWS) {
      blocks.push([]);
      rows = 0;
    }
    blocks[blocks.length - 1].push(lane.id);
    rows += lane.depths;
  }
  return blocks;
}
