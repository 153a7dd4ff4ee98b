/** Pieces that every list of samples shows alike. */

import { el, gettext, icon } from "../format.js";

/** Return the mark before a reward: a check for full, a cross for none, nothing in between. */
export function mark(reward) {
  if (reward === null || reward === undefined) return "";
  if (reward >= 1) return el("span", { class: "good", title: gettext("full reward") }, icon("check"));
  if (reward <= 0) return el("span", { class: "bad", title: gettext("no reward") }, icon("x"));
  return el("span", { class: "faint", title: gettext("part of the reward") }, icon("circle-half-2"));
}

/** Return a text on one line. */
export const oneLine = (text) => text.replace(/\s+/g, " ").trim();
