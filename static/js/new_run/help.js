// What stands behind "?": meaning, range, unit, effects and source of a field, in one panel beside its button.

import { around, find } from "../dom.js";
import { el, gettext } from "../format.js";
import { knobIndex } from "./index.js";

/** @import { Known } from "./index.js" */

export function wireHelp(form, facts) {
  const panel = find("#knob-help");
  /** @type {HTMLElement | null} */
  let opener = null;
  let closedAt = 0;
  panel.addEventListener("toggle", (event) => {
    if (event.newState === "closed") closedAt = Date.now();
  });

  async function show(button) {
    const name = button.dataset.help;
    /** @type {Partial<Record<string, Known>>} */
    const index = name.startsWith("knobs.") ? (await knobIndex(form)).knobs : {};
    if (opener !== button) return;
    const known = { help: "", effects: [], flags: [], ...index[name], ...facts.fields[name] };
    find("h2", panel).textContent = known.label;
    find("[data-help-text]", panel).textContent = known.help;
    const start = facts.fields[name].start.value;
    const rows = [
      [gettext("Allowed"), known.allowed],
      [gettext("Unit"), known.unit],
      [gettext("Starts at"), start],
      ...known.effects,
      ...trainerOptions(known),
      [gettext("Source"), known.source],
    ];
    find("dl", panel).replaceChildren(
      ...rows.filter(([, text]) => text).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]),
    );
    panel.showPopover();
    const at = button.getBoundingClientRect();
    const { width, height } = panel.getBoundingClientRect();
    panel.style.left = `${Math.max(8, Math.min(at.left - 12, innerWidth - width - 8))}px`;
    panel.style.top = `${at.bottom + 6 + height < innerHeight ? at.bottom + 6 : Math.max(8, at.top - height - 6)}px`;
  }

  form.addEventListener("click", (event) => {
    const button = around(event, "[data-help]");
    if (!button) return;
    const isOpen = panel.matches(":popover-open") || Date.now() - closedAt < 250; // pressing the mouse has just closed it
    const isSame = opener === button && isOpen;
    if (panel.matches(":popover-open")) panel.hidePopover();
    opener = button;
    if (!isSame) show(button);
  });
  find(".new-run-form", form).addEventListener("scroll", () => {
    if (panel.matches(":popover-open")) panel.hidePopover();
  });
}

/** Each trainer's option: [whose, name], one line for a trainer and its versions. */
function trainerOptions(known) {
  if (!known.flags.length) return [[gettext("Flag"), known.flag]];
  const found = new Map();
  for (const flag of known.flags) found.set(flag.whose, [...(found.get(flag.whose) ?? []), flag.name]);
  return [...found].map(([whose, names]) => [whose, names.join(", ")]);
}
