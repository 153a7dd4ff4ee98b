// The run list: rows that follow their runs, selection, keys, and the verbs on what is selected.

import { around, controls, find } from "./dom.js";
import { el, fill, gettext, ngettext } from "./format.js";
import { onKeys } from "./keys.js";
import { atMostEvery, exchange } from "./refresh.js";
import { AT_ONCE, doSteps, post, sayAway } from "./runs/bulk.js";
import { completeFilter } from "./runs/complete.js";
import { keepSelection, keptSelection } from "./runs/kept-selection.js";
import { openFeed } from "./socket.js";
import { STOP_UNDO_SECONDS, toast } from "./toast.js";

const LIVE = ["queued", "starting", "running"];
const kept = keptSelection();
const selected = new Set(kept.ids);
/** @type {import("./runs/kept-selection.js").Every | null} */
let all = kept.all; // every run that the filter leaves, where people chose all of them
/** @type {string | null} */
let current = null; // id of the row the keys are on
/** @type {string | null} */
let anchor = null; // where a range began

const results = () => find("#results");
const rows = () => [...document.querySelectorAll("tr[data-run]")];
const row = (/** @type {string} */ id) => document.getElementById(id);
const bar = find("[data-selection]");

// ---- rows follow their runs -------------------------------------------------------------------------------------

const changed = new Set();
const fresh = new Set();

function rowsUrl(ids) {
  const query = new URLSearchParams(results().dataset.query);
  query.set("ids", ids.join(","));
  return `/runs/rows?${query}`;
}

async function refreshRows(ids) {
  const answer = await fetch(rowsUrl(ids), { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(`rows answered ${answer.status}`);
  const holder = document.createElement("template");
  holder.innerHTML = `<table><tbody>${await answer.text()}</tbody></table>`;
  for (const other of holder.content.querySelectorAll("tr[data-run]")) {
    const mine = row(other.id);
    if (!mine) continue;
    for (const name of ["data-name", "data-tags", "data-note", "data-run-state", "data-ended"]) {
      const value = other.getAttribute(name);
      if (value === null) mine.removeAttribute(name);
      else mine.setAttribute(name, value);
    }
    for (const cell of mine.querySelectorAll("[data-cell]")) {
      const partner = other.querySelector(`[data-cell="${CSS.escape(cell.dataset.cell ?? "")}"]`);
      if (partner) exchange(cell, partner);
    }
  }
  showSelection();
}

const refreshChanged = atMostEvery(1000, async () => {
  const ids = [...changed].filter(row);
  changed.clear();
  if (!ids.length) return;
  try {
    await refreshRows(ids);
  } catch (error) {
    for (const id of ids) changed.add(id);
    throw error;
  }
});

function showFresh() {
  const button = document.querySelector("[data-new-runs]");
  if (!button) return;
  button.hidden = !fresh.size;
  button.textContent = fill(ngettext("%(n)s new run: show", "%(n)s new runs: show", fresh.size), { n: fresh.size });
}

const project = document.documentElement.dataset.project ?? "";
openFeed({
  path: `/ws/updates?project=${encodeURIComponent(project)}`,
  onOpen: () => {
    for (const { id } of rows()) changed.add(id);
    refreshChanged();
  },
  onMessage: (message) => {
    if (message.type !== "run") return;
    const { run } = message;
    if (row(run.id)) {
      changed.add(run.id);
      refreshChanged();
    } else if (run.state === "queued" && !fresh.has(run.id)) {
      fresh.add(run.id);
      showFresh();
    }
  },
});

function reload() {
  fresh.clear();
  const query = results().dataset.query;
  return htmx.ajax("get", `/runs${query ? `?${query}` : ""}`, { target: "#results" });
}

// ---- selection ----------------------------------------------------------------------------------------------------

/** Return the ids of what is selected, in the order of the list. */
const chosen = () =>
  all
    ? all.ids
    : rows()
        .map((r) => r.id)
        .filter((id) => selected.has(id));

/** Select every run that the filter leaves, on all pages. */
async function selectAll() {
  const query = results().dataset.query ?? "";
  try {
    const answer = await fetch(`/runs/ids?${query}`, { headers: { Accept: "application/json" } });
    const data = await answer.json();
    if (!answer.ok) throw new Error(data.problem);
    all = { ids: data.ids, live: data.live, query };
    if (!data.is_all) {
      toast(fill(gettext("These are the first %(n)s runs; the filter leaves more."), { n: data.ids.length }));
    }
    for (const { id } of rows()) selected.add(id);
    showSelection();
  } catch {
    sayAway();
  }
}

function showSelection() {
  if (all && all.query !== results().dataset.query) all = null; // another filter, other runs
  const here = new Set(rows().map((r) => r.id));
  for (const id of selected) if (!here.has(id)) selected.delete(id);
  keepSelection({ ids: [...selected], all });
  for (const r of rows()) {
    const isOn = selected.has(r.id);
    r.setAttribute("aria-selected", String(isOn));
    find("td.select input", r).checked = isOn;
    r.classList.toggle("is-current", r.id === current);
  }
  const box = document.querySelector("input[data-select-all]");
  if (box) {
    box.checked = selected.size > 0 && selected.size === here.size;
    box.indeterminate = selected.size > 0 && selected.size < here.size;
  }
  bar.hidden = !selected.size;
  const n = chosen().length;
  find("[data-selection-count]", bar).textContent = fill(ngettext("%(n)s run selected", "%(n)s runs selected", n), {
    n,
  });
  const total = Number(results().dataset.total);
  find("[data-act=all]", bar).hidden = Boolean(all) || selected.size < here.size || total <= here.size;
  const compare = find("[data-act=compare]", bar);
  compare.hidden = selected.size < 2 || Boolean(all);
  compare.replaceChildren(fill(gettext("Compare %(n)s runs"), { n: selected.size }), " ", el("kbd", {}, "c"));
  const live = liveIds();
  const stop = bar.querySelector("[data-act=stop]");
  if (stop) {
    stop.hidden = !live.length;
    stop.textContent = stopText(live.length);
    const isArchive = results().dataset.view === "archived";
    find("[data-act=archive]", bar).hidden = isArchive;
    find("[data-act=restore]", bar).hidden = !isArchive;
  }
}

const liveIds = () => (all ? all.live : [...selected].filter((id) => LIVE.includes(row(id)?.dataset.runState ?? "")));
const stopText = (n) => fill(ngettext("Stop %(n)s running", "Stop %(n)s running", n), { n });

function toggle(id, isRange = false) {
  all = null;
  const ids = rows().map((r) => r.id);
  if (isRange && anchor && ids.includes(anchor)) {
    const [from, to] = [ids.indexOf(anchor), ids.indexOf(id)].sort((a, b) => a - b);
    for (const other of ids.slice(from, to + 1)) selected.add(other);
  } else if (!selected.delete(id)) selected.add(id);
  anchor = id;
  showSelection();
}

document.addEventListener("click", (event) => {
  const every = around(event, "input[data-select-all]");
  if (every) {
    all = null;
    for (const { id } of rows()) {
      if (every.checked) selected.add(id);
      else selected.delete(id);
    }
    showSelection();
    return;
  }
  const box = around(event, "td.select input");
  if (box) {
    current = box.value;
    toggle(box.value, event.shiftKey);
    return;
  }
  const edit = around(event, "[data-edit]")?.closest("tr");
  if (edit) {
    openEdit(edit);
    return;
  }
  if (around(event, "[data-new-runs]")) {
    reload();
    return;
  }
  const act = around(event, "[data-act]");
  if (act) ACTS[act.dataset.act ?? ""]();
});

// ---- verbs ----------------------------------------------------------------------------------------------------------

const rest = (ms) =>
  new Promise((done) => {
    setTimeout(done, ms);
  });

/**
 * Do steps, show what became of the rows, and offer what takes it back.
 *
 * @param {import("./runs/bulk.js").Step[]} steps
 */
async function change(steps) {
  const { done, undo, text } = await doSteps(steps);
  if (!done.length) return;
  const isElsewhere = steps.some(({ verb }) => ["archive", "restore", "delete", "undelete"].includes(verb));
  const showing = isElsewhere ? reload() : refreshRows(done.filter(row));
  await Promise.race([showing.catch(() => {}), rest(1000)]); // done it is all the same; the next change shows it
  const seconds = steps.some(({ verb }) => verb === "stop") ? STOP_UNDO_SECONDS : undefined;
  toast(text, { undo: undo.length ? () => change(undo) : undefined, seconds });
}

/** Return the one step of a verb on what is selected. */
const onChosen = (/** @type {string} */ verb, ids = chosen(), /** @type {string[]} */ tags = []) => [
  { verb, tags, ids },
];

const ACTS = {
  compare: () => {
    location.href = `${find("[data-act=compare]", bar).dataset.url}?runs=${chosen().join(",")}`;
  },
  tag: () => openTags(),
  all: () => selectAll(),
  archive: () => change(onChosen("archive")),
  restore: () => change(onChosen("restore")),
  export: () => {
    location.href = `/runs.csv?${all ? all.query : new URLSearchParams({ ids: chosen().join(",") })}`;
  },
  stop: () => openStop(),
  delete: () => openDelete(),
  clear: () => {
    all = null;
    selected.clear();
    showSelection();
  },
};

// who may only look has none of these dialogs
const tagDialog = document.querySelector("dialog#tag-dialog");
function openTags() {
  find("#tag-dialog input").value = "";
  tagDialog?.showModal();
}
tagDialog?.addEventListener("click", (event) => {
  const button = around(event, "[data-tag]");
  const tags = find("input", tagDialog).value.trim();
  if (!button || !tags) return;
  event.preventDefault();
  tagDialog.close();
  const verb = button.dataset.tag ?? "";
  change(onChosen(verb, chosen(), tags.split(/[\s,]+/)));
});

const stopDialog = document.querySelector("dialog#stop-dialog");
function openStop() {
  const n = liveIds().length;
  find("#stop-dialog h2").textContent = fill(ngettext("Stop %(n)s run?", "Stop %(n)s runs?", n), { n });
  find("#stop-dialog [data-confirm-stop]").textContent = stopText(n);
  stopDialog?.showModal();
}
stopDialog?.querySelector("[data-confirm-stop]")?.addEventListener("click", () => {
  stopDialog.close();
  change(onChosen("stop", liveIds()));
});

const deleteDialog = document.querySelector("dialog#delete-dialog");
/** @type {string[]} */
let going = []; // ids of the runs that the question is about
async function openDelete() {
  if (!deleteDialog) return;
  const wanted = chosen();
  try {
    const answer = await fetch(`/runs/deletion?${new URLSearchParams({ ids: wanted.slice(0, AT_ONCE).join(",") })}`);
    if (!answer.ok) throw new Error(String(answer.status));
    const { ids: first, names, text, refused } = await answer.json();
    const later = wanted.slice(AT_ONCE); // each of them is asked when its turn comes
    const ids = [...first, ...later];
    if (later.length) {
      refused.push(fill(gettext("That is said of the first %(n)s; those after them go likewise."), { n: AT_ONCE }));
    }
    going = ids;
    find("[data-text]", deleteDialog).textContent = text;
    const shown = names.slice(0, 8).map((name) => el("li", {}, name));
    if (ids.length > 8) {
      shown.push(el("li", { class: "faint" }, fill(gettext("and %(n)s more"), { n: ids.length - 8 })));
    }
    find("[data-names]", deleteDialog).replaceChildren(...shown);
    find("[data-refused]", deleteDialog).replaceChildren(
      ...refused.slice(0, 4).map((sentence) => el("p", { class: "field-error" }, sentence)),
    );
    const yes = find("[data-confirm-delete]", deleteDialog);
    yes.hidden = !ids.length;
    yes.textContent = fill(ngettext("Delete %(n)s run", "Delete %(n)s runs", ids.length), { n: ids.length });
    deleteDialog.showModal();
  } catch {
    sayAway();
  }
}
deleteDialog?.querySelector("[data-confirm-delete]")?.addEventListener("click", () => {
  deleteDialog.close();
  change(onChosen("delete", going));
});

const editDialog = document.querySelector("dialog#edit-dialog");
const editForm = editDialog?.querySelector("form");
let edited = ""; // the run's id
function openEdit(/** @type {HTMLElement} */ line) {
  if (!editDialog || !editForm) return;
  const fields = controls(editForm);
  for (const name of ["name", "tags", "note"]) fields[name].value = line.dataset[name] ?? "";
  showEditProblem("", "");
  edited = line.id;
  editDialog.showModal();
  fields.name.select();
}
function showEditProblem(field, message) {
  for (const name of ["name", "tags", "note"]) {
    const input = find(`#edit-${name}`);
    const isWrong = name === field;
    if (isWrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    find(`#edit-${name}-error`).textContent = isWrong ? message : "";
    if (isWrong) input.focus();
  }
}
async function save(id, fields) {
  const { isOk, data } = await post(`/runs/${id}/edit`, fields);
  if (!isOk) return data;
  await Promise.race([refreshRows([id]).catch(() => {}), rest(1000)]); // as above
  toast(gettext("Saved"), { undo: () => save(id, data.before) });
  return null;
}
editForm?.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const problem = await save(edited, Object.fromEntries(new FormData(editForm)));
    if (problem) showEditProblem(problem.field, problem.message);
    else editDialog?.close();
  } catch {
    sayAway();
  }
});

// ---- keys -------------------------------------------------------------------------------------------------------------

function move(by) {
  const list = rows();
  if (!list.length) return;
  const at = list.findIndex((r) => r.id === current);
  const next = list[Math.max(0, Math.min(list.length - 1, at < 0 ? 0 : at + by))];
  current = next.id;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  showSelection();
}
onKeys({
  j: () => move(1),
  k: () => move(-1),
  x: () => current && row(current) && toggle(current),
  X: () => current && row(current) && toggle(current, true),
  c: () => {
    if (selected.size < 2) return false;
    ACTS.compare();
    return true;
  },
  e: () => {
    const line = current && row(current);
    if (line) openEdit(line);
  },
  Enter: () => {
    const url = current && row(current)?.dataset.url;
    if (url) location.href = url;
  },
  Escape: () => {
    if (!selected.size) return false;
    ACTS.clear();
    return true;
  },
});
document.addEventListener("focusin", (event) => {
  const mine = around(event, "tr[data-run]");
  if (mine && mine.id !== current) {
    current = mine.id;
    for (const r of rows()) r.classList.toggle("is-current", r === mine);
  }
});

// A filter that is not right yet, as it is while one types, keeps the runs that are shown: only its problem is said.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const shown = document.querySelector("#results #filter-problem");
  if (detail.target?.id !== "results" || !document.querySelector("#results .runs-card")) return;
  const answer = new DOMParser().parseFromString(detail.serverResponse, "text/html");
  const problem = answer.querySelector("#filter-problem[role]");
  if (!shown || !problem) return;
  detail.shouldSwap = false;
  shown.replaceWith(problem);
});
document.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.target?.id === "results") {
    fresh.clear();
    showSelection();
  }
});
showSelection();
completeFilter();
