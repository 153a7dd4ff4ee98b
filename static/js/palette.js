// Ctrl K: runs by name, pages and commands in one list.

import { find } from "./dom.js";
import { el, gettext, stateBadge } from "./format.js";

const dialog = document.querySelector("dialog#palette"); // not on the page where people sign in
/** @type {{ text: string, act: () => void, keys: string }[]} */
const commands = [];
/** @type {any[]} */
let entries = [];
let active = 0;
let asked = 0;
/** @type {string | null} */
let shownFor = null; // the query that the list answers in full

/** Offer a command in the palette: addCommand(gettext("Switch theme"), run, "Alt M"). */
export function addCommand(text, run, keys = "") {
  commands.push({ text, act: run, keys });
}

/** Open the palette, empty. */
export function openPalette() {
  if (!dialog || dialog.open) return;
  dialog.showModal();
  const input = find("input", dialog);
  input.value = "";
  input.focus();
  search("");
}

async function search(query) {
  const mine = ++asked;
  const wanted = query.trim().toLowerCase();
  const pages = [...document.querySelectorAll(".topnav a, [data-further-pages] a")].map((a) => ({
    text: a.textContent,
    url: a.href,
    keys: a.dataset.keys,
  }));
  const local = [...pages, ...commands].filter((entry) => entry.text.toLowerCase().includes(wanted));
  shownFor = null;
  show(local);
  try {
    const answer = await fetch(`${find("#palette").dataset.source}?q=${encodeURIComponent(query)}`, {
      headers: { Accept: "application/json" },
    });
    if (mine !== asked || !answer.ok) return;
    const { runs } = await answer.json();
    const found = runs.map((run) => ({ text: run.name, url: run.url, run }));
    show(wanted ? [...found, ...local] : [...local, ...found]);
  } catch {
    // Offline: pages and commands are still there.
  }
  if (mine === asked) shownFor = query;
}

function show(found) {
  entries = found;
  active = 0;
  const list = find("#palette [role=listbox]");
  list.replaceChildren(...found.map(item));
  if (!found.length)
    list.append(el("p", { class: "menu-head" }, gettext("Nothing found. Try another part of the name.")));
  mark();
}

function item(entry, index) {
  const row = el("div", { class: "menu-item", role: "option", id: `palette-${index}`, onclick: () => choose(index) });
  row.append(el("span", { class: "cut" }, entry.text));
  if (entry.run)
    row.append(
      el("code", { class: "mono faint" }, entry.run.id),
      el("span", { class: "spacer" }),
      stateBadge(entry.run.state),
    );
  else if (entry.keys)
    row.append(el("span", { class: "faint" }, ...entry.keys.split(" ").map((key) => el("kbd", {}, key))));
  return row;
}

function mark() {
  const rows = document.querySelectorAll("#palette [role=option]");
  rows.forEach((row, index) => {
    row.setAttribute("aria-selected", String(index === active));
  });
  rows[active]?.scrollIntoView({ block: "nearest" });
  find("#palette input").setAttribute("aria-activedescendant", rows[active]?.id ?? "");
}

function choose(index) {
  const entry = entries[index];
  if (!entry) return;
  dialog?.close();
  if (entry.url) location.href = entry.url;
  else entry.act();
}

if (dialog) {
  const input = find("input", dialog);
  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => search(input.value), 80);
  });
  input.addEventListener("keydown", async (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      active = (active + (event.key === "ArrowDown" ? 1 : entries.length - 1)) % Math.max(1, entries.length);
      mark();
      event.preventDefault();
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      if (shownFor !== input.value) {
        // typed faster than the list follows: Enter means what was typed
        clearTimeout(waiting);
        await search(input.value);
      }
      choose(active);
    }
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
