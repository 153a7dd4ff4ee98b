// Completion of the filter line: a list under it of what may stand at the cursor, asked of the server as one types.

import { around, find } from "../dom.js";
import { el } from "../format.js";

const input = find("input#q");
const list = find("#q-list");
/** @type {{ start: number, end: number, line: string, suggestions: { text: string, about: string }[] }} */
let found = { start: 0, end: 0, line: "", suggestions: [] };
let active = -1; // none: Enter means what stands there
let asked = 0;
let waiting = 0;

/** Offer completions of the filter line. */
export function completeFilter() {
  input.addEventListener("input", later);
  input.addEventListener("click", later);
  input.addEventListener("blur", () => setTimeout(hide, 150)); // a click on the list comes first
  input.addEventListener("keydown", onKey);
  list.addEventListener("pointerdown", (event) => {
    const row = around(event, "[data-index]");
    if (!row) return;
    event.preventDefault(); // the line keeps the focus
    take(Number(row.dataset.index));
  });
}

function later() {
  clearTimeout(waiting);
  waiting = setTimeout(() => ask(), 120);
}

async function ask(isWanted = false) {
  const mine = ++asked;
  const line = input.value;
  const query = new URLSearchParams({ q: line, at: String(input.selectionStart ?? line.length) });
  try {
    const answer = await fetch(`/runs/complete?${query}`, { headers: { Accept: "application/json" } });
    if (mine !== asked || !answer.ok || document.activeElement !== input) return;
    found = { ...(await answer.json()), line };
    const isBegun = found.end > found.start || /[:=<>,]$/.test(input.value.slice(0, found.start));
    if (isBegun || isWanted) show();
    else hide(); // every name there is would only cover the runs
  } catch {
    hide(); // without the console the line is typed by hand
  }
}

function show() {
  active = -1;
  const typed = input.value.slice(found.start, found.end);
  const rows = found.suggestions.filter(({ text }) => text !== typed);
  found = { ...found, suggestions: rows };
  list.replaceChildren(
    ...rows.map(({ text, about }, index) =>
      el(
        "div",
        { class: "menu-item", role: "option", id: `q-option-${index}`, "data-index": String(index) },
        el("code", {}, text),
        el("span", { class: "faint cut" }, about),
      ),
    ),
  );
  list.hidden = !rows.length;
  input.setAttribute("aria-expanded", String(!list.hidden));
  mark();
}

function hide() {
  asked += 1;
  list.hidden = true;
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
}

function mark() {
  const rows = [...list.querySelectorAll("[role=option]")];
  rows.forEach((row, index) => {
    row.setAttribute("aria-selected", String(index === active));
  });
  if (rows[active]) {
    rows[active].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", rows[active].id);
  } else input.removeAttribute("aria-activedescendant");
}

/** Put a suggestion in place of the piece; a name goes on with its value, a value ends with a space. */
function take(/** @type {number} */ index) {
  const chosen = found.suggestions[index];
  if (!chosen) return;
  const goesOn = /[:.]$/.test(chosen.text);
  const isValue = /[:=<>,]$/.test(input.value.slice(0, found.start));
  const text = chosen.text + (isValue || ["or", "not"].includes(chosen.text) || /^tag:./.test(chosen.text) ? " " : "");
  const since = input.value.length - found.line.length; // typed while the list was that of the line before
  input.setRangeText(text, found.start, Math.max(found.end + since, found.start), "end");
  hide();
  input.dispatchEvent(new Event("input", { bubbles: true }));
  if (goesOn || !isValue) later();
}

function onKey(/** @type {KeyboardEvent} */ event) {
  if (event.isComposing) return;
  if (list.hidden) {
    if (event.key === "ArrowDown") ask(true);
    if (event.key !== "Escape") return;
    event.preventDefault(); // browsers would take the filter away
    event.stopPropagation();
    input.blur();
    return;
  }
  const n = found.suggestions.length;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    active = event.key === "ArrowDown" ? (active + 1) % n : (active <= 0 ? n : active) - 1;
    mark();
  } else if (event.key === "Tab" && !event.shiftKey) {
    take(Math.max(active, 0));
  } else if (event.key === "Enter" && active >= 0) {
    take(active);
  } else if (event.key === "Escape") {
    hide();
  } else {
    if (event.key === "Enter") hide();
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}
