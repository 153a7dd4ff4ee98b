/**
 * Tables that are wider or higher than their box take the focus, so that the arrow keys scroll them; where all is in
 * sight, Tab does not stop at them. The box is named after the heading above it.
 */

import { gettext } from "./format.js";

const BOX = ".table-wrap:not([tabindex])";

const sized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const box = target.closest(".table-wrap");
    if (box instanceof HTMLElement) tell(box);
  }
});

/** Watch the boxes of a part of the page. */
function watch(/** @type {ParentNode} */ part) {
  for (const box of part.querySelectorAll(BOX)) {
    sized.observe(box);
    for (const held of box.children) sized.observe(held);
  }
}

function tell(/** @type {HTMLElement} */ box) {
  const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
  if (scrolls === box.hasAttribute("tabindex")) return;
  if (scrolls) {
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", nameOf(box));
  } else for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
}

/** @returns {string} */
function nameOf(/** @type {HTMLElement} */ box) {
  const around = box.closest("section, article, details, main");
  const title = around?.querySelector("caption, h1, h2, h3, h4, summary")?.textContent ?? "";
  return title.trim().replace(/\s+/g, " ") || gettext("Table");
}

/** Watch all boxes of the page, and those that htmx brings. */
export function watchScrollBoxes() {
  watch(document);
  document.addEventListener("htmx:afterSettle", () => watch(document));
}
