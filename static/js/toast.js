// Toasts: only results of one's own actions, one line, gone after 6 s, or 12 where they undo; errors stay until closed. Never for news.

import { find } from "./dom.js";
import { el, gettext, icon } from "./format.js";

/** How long a stop can be taken back; the console waits a second more (STOP_GRACE in jobs/runs/lifecycle.py). */
export const STOP_UNDO_SECONDS = 9;
const LIFE_MS = 6000;
const UNDO_LIFE_MS = 12000; // read, understood and reached for

/**
 * Show one line. `undo` is called by its button, which is there for `seconds`, under a hand, too, where it is too late
 * after them; `isError` keeps it until it is closed.
 *
 * @param {string} text
 * @param {{ undo?: () => void, seconds?: number, link?: { url: string, text: string }, isError?: boolean }} [options]
 */
export function toast(text, { undo, seconds, link, isError = false } = {}) {
  const place = find("[data-toasts]");
  const close = () => line.remove();
  const line = el("div", { class: "toast-line", "data-level": isError ? "error" : "info" }, el("span", {}, text));
  if (undo)
    line.append(
      el(
        "button",
        {
          class: "link",
          type: "button",
          onclick: () => {
            close();
            undo();
          },
        },
        gettext("Undo"),
      ),
    );
  if (link) line.append(el("a", { href: link.url }, link.text));
  if (isError) {
    line.append(
      el(
        "button",
        { class: "btn btn-quiet btn-icon btn-sm", type: "button", "aria-label": gettext("Close"), onclick: close },
        icon("x"),
      ),
    );
  } else if (seconds) setTimeout(close, seconds * 1000);
  else expire(line, undo ? UNDO_LIFE_MS : LIFE_MS);
  place.append(line);
  return close;
}

/** Let the lines that came with the page go like any other. */
export function adoptServerToasts() {
  for (const line of document.querySelectorAll(".toast-line")) {
    if (line.dataset.level !== "error") expire(line);
  }
}

/** Take a line away after its time, but not from under a hand. */
function expire(line, ms = LIFE_MS) {
  setTimeout(() => {
    if (line.matches(":hover, :focus-within")) expire(line, ms);
    else line.remove();
  }, ms);
}
