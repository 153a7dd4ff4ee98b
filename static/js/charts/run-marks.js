/** What stands on the charts of a run besides its lines: checkpoints, restarts, captures, alerts, notes; each in words. */

import { fill, gettext } from "../format.js";

/** @import { Mark } from "./plot" */
/** @typedef {{ type: string, attempt: number, step: number }} Artifact */
/** @typedef {{ step: number, attempt: number }} Restart */
/** @typedef {{ steps: [number, number] | null, tool: string }} Capture */
/** @typedef {{ title: string, tone: string, begin_step: number, end_step: number | null, newest: number }} Symptom */
/** @typedef {{ step: number | null, title: string, opened_at: string }} Alert */
/** @typedef {{ step: number, text: string, by: string }} Note */

/**
 * @param {Artifact[]} artifacts
 * @param {(attempt: number, step: number) => boolean} isDead whether the history has left that step behind
 * @returns {Mark[]}
 */
export const checkpointMarks = (artifacts, isDead) =>
  artifacts
    .filter((one) => one.type === "checkpoint" && one.step > 0 && !isDead(one.attempt, one.step))
    .map(({ step }) => ({ x: step, type: "checkpoint", text: fill(gettext("Checkpoint of step %(step)s"), { step }) }));

/** What holds still reaches to the newest step. @returns {Mark[]} */
export const symptomMarks = (/** @type {Symptom[]} */ symptoms) =>
  symptoms.map(({ title, tone, begin_step: first, end_step: last, newest }) => ({
    x: first,
    to: last ?? newest,
    type: tone,
    text: last
      ? fill(gettext("%(title)s, steps %(first)s–%(last)s"), { title, first, last })
      : fill(gettext("%(title)s, since step %(first)s"), { title, first }),
  }));

/** @returns {Mark[]} */
export const restartMarks = (/** @type {Restart[]} */ restarts) =>
  restarts.map(({ step, attempt }) => ({
    x: step,
    type: "resume",
    text: fill(gettext("Attempt %(attempt)s goes on from the checkpoint of step %(step)s"), { attempt, step }),
  }));

/** @returns {Mark[]} */
export const captureMarks = (/** @type {Capture[]} */ captures) =>
  captures.flatMap(({ steps, tool }) => {
    if (!steps) return [];
    const [first, last] = steps;
    const text = fill(gettext("Recorded with %(tool)s, steps %(first)s–%(last)s"), { tool, first, last });
    return [{ x: first, to: last, type: "capture", text }];
  });

/** Alerts of one step share a mark. @returns {Mark[]} */
export const alertMarks = (/** @type {Alert[]} */ alerts) =>
  shared(alerts, "alert", ({ title }) => fill(gettext("Alert: %(title)s"), { title }));

/** Notes of one step share a mark. @returns {Mark[]} */
export const noteMarks = (/** @type {Note[]} */ notes) =>
  shared(notes, "note", ({ text, by }) => (by ? `${text} (${by})` : text));

/**
 * @template {{ step: number | null }} T
 * @param {T[]} items
 * @param {string} type
 * @param {(item: T) => string} say
 * @returns {Mark[]}
 */
function shared(items, type, say) {
  /** @type {Map<number, string[]>} */
  const texts = new Map();
  for (const item of items) if (item.step !== null) texts.set(item.step, [...(texts.get(item.step) ?? []), say(item)]);
  return [...texts].map(([x, lines]) => ({ x, type, text: lines.join("\n") }));
}
