/** Colours of events: phases as everywhere, all else by category, in three shades by name so that neighbours stay apart. */

import { color, onTheme } from "../charts/colors.js";
import { gettext } from "../format.js";

/** Categories by their number in a store. */
export const CATEGORIES = [
  "other",
  "step",
  "phase",
  "range",
  "operator",
  "python",
  "runtime",
  "sync",
  "kernel",
  "communication",
  "copy",
  "memset",
  "batch",
  "collector",
  "system",
  "overhead",
  "native",
  "scheduling",
];
const SHADES = [1, 0.9, 0.8];
const OFF_CPU = "not on a CPU"; // profiling/trace/scheduling.py
const REST = 0.6; // of the color of a thread that runs: one that does not stands back

/** Return the word of a category. */
export function categoryWord(/** @type {string} */ key) {
  /** @type {Record<string, string>} */
  const words = {
    other: gettext("other"),
    step: gettext("step"),
    phase: gettext("phase"),
    range: gettext("range"),
    operator: gettext("operator"),
    python: gettext("Python"),
    runtime: gettext("runtime call"),
    sync: gettext("synchronisation"),
    kernel: gettext("kernel"),
    communication: gettext("communication"),
    copy: gettext("copy"),
    memset: gettext("memset"),
    batch: gettext("batch"),
    collector: gettext("garbage collector"),
    system: gettext("system call"),
    overhead: gettext("profiler overhead"),
    native: gettext("native code"),
    scheduling: gettext("scheduling"),
  };
  return words[key] ?? key;
}

/** Return the CSS variable of a category. */
export const categoryToken = (/** @type {string} */ key) => `--trace-${key === "memset" ? "copy" : key}`;

/** @import { Table } from "./rows.js" */
/** @typedef {[red: number, green: number, blue: number]} Color */

export class Palette {
  constructor(/** @type {Map<string, { label: string, token: string }>} */ phases) {
    this.phases = phases;
    this.version = 1;
    /** @type {Map<string, Color>} */
    this.known = new Map();
    onTheme(() => {
      this.version += 1;
      this.known.clear();
    });
  }

  /**
   * Return the color of an event.
   *
   * @param {number} category
   * @param {string} name
   */
  rgb(category, name) {
    const key = CATEGORIES[category] ?? "other";
    const phase = key === "phase" || key === "range" ? this.phases.get(name) : null;
    const id = phase ? `phase|${name}` : `${key}|${shade(key, name)}`;
    const known = this.known.get(id);
    if (known) return known;
    const base = parse(color(phase ? `--${phase.token}` : key === "phase" ? "--phase-advantages" : categoryToken(key)));
    const shown = phase ? base : mix(base, parse(color("--surface")), shade(key, name));
    this.known.set(id, shown);
    return shown;
  }

  /**
   * Return an opaque pixel of ImageData, little-endian.
   *
   * @param {number} category
   * @param {string} name
   */
  pixel(category, name) {
    const [red, green, blue] = this.rgb(category, name);
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }

  /** Return the pixels of a table of names, kept with it until the theme changes. */
  pixels(/** @type {Table} */ table) {
    if (table.version !== this.version || !table.pixels) {
      table.version = this.version;
      table.pixels = Uint32Array.from(table.names, (name, i) => this.pixel(table.cats[i], name));
    }
    return table.pixels;
  }
}

/** Return the share of its color that a name has. */
function shade(/** @type {string} */ key, /** @type {string} */ name) {
  if (key === "phase") return 1;
  if (key === "scheduling") return name === OFF_CPU ? REST : 1;
  let sum = 0;
  for (let i = 0; i < name.length; i += 1) sum = (sum * 31 + name.charCodeAt(i)) >>> 0;
  return SHADES[sum % SHADES.length];
}

/** @returns {Color} */
function parse(/** @type {string} */ hex) {
  const number = Number.parseInt(hex.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

/** @returns {Color} */
function mix(/** @type {Color} */ one, /** @type {Color} */ other, /** @type {number} */ share) {
  const part = (/** @type {number} */ i) => Math.round(one[i] * share + other[i] * (1 - share));
  return [part(0), part(1), part(2)];
}
