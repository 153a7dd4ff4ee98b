// The one place that listens to the keyboard. Single keys are off while someone types or a dialog is open.

import { around } from "./dom.js";

const single = new Map();
const chords = new Map();
let first = "";
let firstAt = 0;

/** Register single keys of a page: onKeys({j: next, k: previous}). The handler gets the event. */
export function onKeys(handlers) {
  for (const [key, handler] of Object.entries(handlers)) single.set(key, handler);
}

/** Register two keys in a row: onChord("g h", handler). */
export function onChord(keys, handler) {
  chords.set(keys, handler);
}

function isTyping(target) {
  return (
    target.isContentEditable ||
    (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && !["checkbox", "radio", "button"].includes(target.type))
  );
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const chord = `${first} ${event.key}`;
  if (first && Date.now() - firstAt < 1200 && chords.has(chord)) {
    first = "";
    event.preventDefault();
    chords.get(chord)(event);
    return;
  }
  if ([...chords.keys()].some((keys) => keys.startsWith(`${event.key} `))) {
    first = event.key;
    firstAt = Date.now();
    return;
  }
  first = "";
  const handler = single.get(event.key);
  if (!handler) return;
  const onControl = around(event, "a, button, summary");
  if (onControl && (event.key === "Enter" || event.key === " ")) return;
  if (handler(event) !== false) event.preventDefault();
});
