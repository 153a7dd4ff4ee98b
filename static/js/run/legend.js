/** The legend of phases: those that are in sight, and waiting. */

import { el, gettext } from "../format.js";

/** Fill `node` with a swatch and a word for each phase of `keys`, in the order of a step. */
export function phaseLegend(node, phases, keys) {
  const shown = [...phases.values()].filter((phase) => keys.has(phase.key));
  const signature = shown.map((phase) => phase.key).join();
  if (node.dataset.shown === signature) return;
  node.dataset.shown = signature;
  const entry = (attributes, word) => el("span", { class: "legend" }, el("i", attributes), word);
  node.replaceChildren(
    ...shown.map((phase) => entry({ class: "swatch", "data-phase": phase.key }, phase.label)),
    entry({ class: "swatch is-waiting" }, gettext("Waiting")),
  );
}
