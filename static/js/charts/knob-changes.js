/** What is said of knobs that were changed while a run trained, and the marks of it on the charts. */

import { fill, gettext } from "../format.js";

/** @import { Mark } from "./plot" */
/** @typedef {number | string | boolean | null} Value */
/** @typedef {{ label: string, old: Value, new: Value, step: number, by: string, is_visible: boolean }} Change */

/** Write a value as people type it: 3e-4, 0.001, 20. */
export function valueText(/** @type {Value} */ value) {
  if (typeof value !== "number" || value === 0 || Math.abs(value) >= 1e-3) return String(value);
  return value.toExponential().replace("e+", "e");
}

/** Say one change: old and new value, from which step on, and by whom. */
export function changeText(/** @type {Omit<Change, "is_visible">} */ { label, old, new: now, step, by }) {
  const said = { label, old: valueText(old), now: valueText(now), step, by };
  return by
    ? fill(gettext("%(label)s %(old)s → %(now)s from step %(step)s on, by %(by)s"), said)
    : fill(gettext("%(label)s %(old)s → %(now)s from step %(step)s on"), said);
}

/** Return a mark for each step at which knobs changed in the history; the changes of one step share one. @returns {Mark[]} */
export function changeMarks(/** @type {Change[]} */ changes) {
  /** @type {Map<number, string[]>} */
  const texts = new Map();
  for (const change of changes)
    if (change.is_visible) texts.set(change.step, [...(texts.get(change.step) ?? []), changeText(change)]);
  return [...texts].map(([x, lines]) => ({ x, type: "change", text: lines.join("\n") }));
}
