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
];
const SHADES = [1, 0.9, 0.8];

/** Return the word of a category. */
export function categoryWord(key) {
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
  };
  return words[key] ?? key;
}

/** Return the CSS variable of a category. */
export const categoryToken = (key) => `--trace-${key === "memset" ? "copy" : key}`;

export class Palette {
  /** `phases` maps a key to { label, token }. */
  constructor(phases) {
    this.phases = phases;
    this.version = 1;
    this.known = new Map();
    onTheme(() => {
      this.version += 1;
      this.known.clear();
    });
  }

  /** Return [red, green, blue] of an event by its category (a number) and name. */
  rgb(category, name) {
    const key = CATEGORIES[category] ?? "other";
    const phase = key === "phase" || key === "range" ? this.phases.get(name) : null;
    const id = phase ? `phase|${name}` : `${key}|${shade(key, name)}`;
    if (!this.known.has(id)) {
      const base = parse(
        color(phase ? `--${phase.token}` : key === "phase" ? "--phase-advantages" : categoryToken(key)),
      );
      this.known.set(id, phase ? base : mix(base, parse(color("--surface")), SHADES[shade(key, name)]));
    }
    return this.known.get(id);
  }

  /** Return an opaque pixel of ImageData, little-endian. */
  pixel(category, name) {
    const [red, green, blue] = this.rgb(category, name);
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }

  /**
   * Return the pixels of a table of names, kept with it until the theme changes.
   *
   * @param {{ names: string[], cats: number[], version?: number, pixels?: Uint32Array }} table
   */
  pixels(table) {
    if (table.version !== this.version || !table.pixels) {
      table.version = this.version;
      table.pixels = Uint32Array.from(table.names, (name, i) => this.pixel(table.cats[i], name));
    }
    return table.pixels;
  }
}

function shade(key, name) {
  if (key === "phase") return 0;
  let sum = 0;
  for (let i = 0; i < name.length; i += 1) sum = (sum * 31 + name.charCodeAt(i)) >>> 0;
  return sum % SHADES.length;
}

function parse(hex) {
  const number = Number.parseInt(hex.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

const mix = (one, other, share) => one.map((value, i) => Math.round(value * share + other[i] * (1 - share)));
