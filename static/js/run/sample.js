/** Pieces that every list of samples shows alike. */

import { el, gettext, grouped, icon } from "../format.js";

/** Return the mark before a reward: a check for full, a cross for none, nothing in between. */
export function mark(reward) {
  if (reward === null || reward === undefined) return "";
  if (reward >= 1) return el("span", { class: "good", title: gettext("full reward") }, icon("check"));
  if (reward <= 0) return el("span", { class: "bad", title: gettext("no reward") }, icon("x"));
  return el("span", { class: "faint", title: gettext("part of the reward") }, icon("circle-half-2"));
}

/** Return a reward with two decimals, so that a column of them lines up. */
export function reward(value) {
  if (value === null || value === undefined) return "—";
  const text = value.toFixed(2);
  return text === "-0.00" ? "0.00" : text.replace("-", "−");
}

/** Return what a completion ends with: its last number, else its last words. */
export function finalWord(text) {
  const numbers = text.match(/-?\d[\d,]*(?:\.\d+)?/g);
  if (numbers) return numbers.at(-1);
  const line = oneLine(text);
  return line.length > 20 ? `…${line.slice(-20)}` : line || "—";
}

/** Return how many tokens a response has; other trainers do not say. */
export const tokenCount = (row) => (row.tokens || !row.completion ? grouped(row.tokens) : "—");

/** Return a text on one line. */
export const oneLine = (text) => text.replace(/\s+/g, " ").trim();
