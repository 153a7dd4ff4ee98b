/** What happened to the compared runs, each mark in its run's color and words, where it stands on the x axis of the page. */

import { changeMarks } from "../charts/knob-changes.js";
import {
  alertMarks,
  captureMarks,
  checkpointMarks,
  noteMarks,
  restartMarks,
  symptomMarks,
} from "../charts/run-marks.js";

/**
 * Return the marks of all runs that the page has some of, and over steps the last step that all have done. None while the page
 * that was read is of another axis: the server knows where a step stands on it.
 */
export function marksOf({ common, runs, axis: known }, axis) {
  if (known !== axis) return [];
  const marks = common && axis === "step" ? [{ x: common, type: "common" }] : [];
  for (const { marks: own, short, color } of runs) {
    if (!own) continue;
    const artifacts = own.checkpoints.map((step) => ({ type: "checkpoint", attempt: 0, step }));
    const all = [
      ...checkpointMarks(artifacts, () => false), // those of the history alone are told
      ...captureMarks(own.captures),
      ...symptomMarks(own.symptoms),
      ...restartMarks(own.restarts),
      ...changeMarks(own.changes),
      ...alertMarks(own.alerts),
      ...noteMarks(own.notes),
    ];
    for (const mark of placed(all, own.places))
      marks.push({ ...mark, color: `--run-${color % 10}`, text: `${short}: ${mark.text}` });
  }
  return marks;
}

/** Return the marks at the places of their steps; `places` is null where x are steps. */
function placed(marks, places) {
  if (!places) return marks;
  return marks.flatMap((mark) => {
    const x = places[mark.x];
    if (x === undefined) return [];
    return [mark.to === undefined ? { ...mark, x } : { ...mark, x, to: places[mark.to] ?? x }];
  });
}
