/**
 * Tables that are wider or higher than their box take the focus, so that the arrow keys scroll them; where all is in
 * sight, Tab does not stop at them. The box is named after the heading above it.
 */

import { gettext } from "./format.js";

const BOX = ".table-wrap";

const sized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const box = target.closest(".table-wrap");
    if (box instanceof HTMLElement) tell(box);
  }
});

/** Watch the boxes in a part of the page, and what they hold, which decides whether they scroll. */
function watch(/** @type {Element} */ part) {
  const around = part.parentElement?.matches(BOX) ? [part.parentElement] : []; // the part is what a box holds
  const own = part.matches(BOX) ? [part] : [];
  for (const box of [...around, ...own, ...part.querySelectorAll(BOX)])
    for (const one of [box, ...box.children]) sized.observe(one);
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

/** Watch all boxes of the page, and those that scripts and htmx bring. */
export function watchScrollBoxes() {
  watch(document.body);
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes) for (const node of addedNodes) if (node instanceof Element) watch(node);
  }).observe(document.body, { childList: true, subtree: true });
}
