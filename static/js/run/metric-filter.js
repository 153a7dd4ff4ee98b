/** Which metrics the text of the search field means: a part of their name or label, or a regular expression. */

import { fill, gettext } from "../format.js";

/**
 * Return what decides of a metric's name and label, without regard to case; and, where the expression is broken, a
 * sentence instead (`matches` is null then).
 *
 * @param {string} text "" means all
 * @param {boolean} isExpression
 * @returns {{ matches: ((name: string, label: string) => boolean) | null, problem: string }}
 */
export function metricFilter(text, isExpression) {
  const wanted = text.trim();
  if (!isExpression) {
    const needle = wanted.toLowerCase();
    return { matches: (name, label) => `${name} ${label}`.toLowerCase().includes(needle), problem: "" };
  }
  try {
    const expression = new RegExp(wanted, "i");
    return { matches: (name, label) => expression.test(name) || expression.test(label), problem: "" };
  } catch (error) {
    const said = error instanceof Error ? error.message : "";
    const reason = said.slice(said.lastIndexOf(": ") + 2); // browsers put the whole expression before it
    const sentence = gettext("“%(text)s” is not a regular expression: %(reason)s.");
    return { matches: null, problem: fill(sentence, { text: wanted, reason }) };
  }
}
