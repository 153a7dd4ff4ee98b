/** The sections of the charts: what is pinned first, then metrics by prefix, readings of machines last. */

import { gettext } from "../format.js";

/** @typedef {{ kind: string, name: string }} Metric */
/** @typedef {{ key: string, title: string, metrics: Metric[] }} Section `key` ends with "/" where it is a prefix of names */

const PINNED = "~pinned";
const SYSTEM = "~system";
const OTHER = "~other";
const ORDER = ["reward", "eval", "loss", "kl", "policy", "response", "groups", "sync", "time", "throughput", "train"];

/**
 * Return the sections in the order in which they stand, each with its metrics by name.
 *
 * @param {Iterable<Metric>} metrics
 * @param {(name: string) => boolean} isPinned
 * @returns {Section[]}
 */
export function sectionsOf(metrics, isPinned) {
  /** @type {Map<string, Metric[]>} */
  const byKey = new Map();
  for (const metric of metrics) {
    const key = isPinned(metric.name) ? PINNED : groupOf(metric);
    const group = byKey.get(key);
    if (group) group.push(metric);
    else byKey.set(key, [metric]);
  }
  const keys = [...byKey.keys()].sort((a, b) => placeOf(a) - placeOf(b) || compare(a, b));
  return keys.map((key) => {
    const group = byKey.get(key) ?? [];
    return { key, title: titleOf(key), metrics: group.sort((a, b) => compare(a.name, b.name)) };
  });
}

const { compare } = new Intl.Collator("en", { numeric: true }); // layer 2 before layer 10

/** @param {Metric} metric */
function groupOf({ kind, name }) {
  if (kind === "system") return SYSTEM;
  return name.includes("/") ? name.slice(0, name.indexOf("/") + 1) : OTHER;
}

/** Where a section stands: what people look at first, then others, machines last. */
function placeOf(/** @type {string} */ key) {
  if (key === PINNED) return -1;
  if (key === SYSTEM) return 1001;
  if (key === OTHER) return 1000;
  const at = ORDER.indexOf(key.slice(0, -1));
  return at >= 0 ? at : 100;
}

/** @param {string} key */
function titleOf(key) {
  /** @type {Record<string, string>} */
  const titles = {
    [PINNED]: gettext("Pinned"),
    "reward/": gettext("Reward"),
    "eval/": gettext("Held-out"),
    "loss/": gettext("Loss"),
    "kl/": gettext("KL to reference"),
    "policy/": gettext("Policy"),
    "response/": gettext("Responses"),
    "groups/": gettext("Groups of samples"),
    "sync/": gettext("Weight sync"),
    "time/": gettext("Time"),
    "throughput/": gettext("Speed"),
    "train/": gettext("Progress"),
    [SYSTEM]: gettext("System"),
    [OTHER]: gettext("other"),
  };
  return titles[key] ?? key.slice(0, -1);
}
