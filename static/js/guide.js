// The guide's list: which row is shown, and the keys that go through it. What is shown comes from the server.
import { onKeys } from "./keys.js";

const rows = () => [...document.querySelectorAll("[data-list] a")];

/** Mark the row of the detail that is shown, and bring it into sight within the list alone. */
function mark() {
  const shown = document.querySelector("#guide-detail")?.dataset.item;
  if (shown === undefined) return;
  for (const row of rows()) {
    const isShown = decodeURIComponent(new URL(row.href).pathname.split("/").at(-1) ?? "") === shown;
    if (isShown) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
    if (isShown) reveal(row);
  }
}

function reveal(row) {
  const list = row.closest("[data-list]");
  if (list.scrollHeight <= list.clientHeight) return;
  const place = row.getBoundingClientRect(),
    frame = list.getBoundingClientRect();
  if (place.top < frame.top + 30 || place.bottom > frame.bottom)
    list.scrollTop += place.top - frame.top - list.clientHeight / 3;
}

function step(by) {
  const all = rows();
  const at = all.findIndex((row) => row.hasAttribute("aria-current"));
  all[Math.min(Math.max(at + by, 0), all.length - 1)]?.click();
}

document.addEventListener("htmx:afterSwap", mark);
onKeys({ j: () => step(1), k: () => step(-1) });
mark();
