// The knobs of the form: which are shown, who chose each value, what it was, and how to get that back.

import { fill, gettext, ngettext } from "../format.js";
import { inputs } from "./state.js";

const CLOSED_AT_FIRST = ["columns", "eval", "checkpoint", "logging"];

/** True if both texts say the same value: 0.0003 is 3e-4, and 1,000 is 1000. */
function isSame(text, other) {
  const [a, b] = [text, other].map((t) => t.trim().replaceAll(",", ""));
  return text === other || a === b || (a !== "" && b !== "" && Number(a) === Number(b));
}

export class Knobs {
  #form;
  #facts;
  #shown = "essential";
  #query = "";

  constructor(form, facts, { onRestore }) {
    this.#form = form;
    this.#facts = facts;
    for (const field of this.#fields()) this.#addRestore(field, onRestore);
    for (const group of form.querySelectorAll(".knob-group")) {
      const button = group.querySelector("h3 button");
      button.addEventListener("click", () => this.#open(group, button.getAttribute("aria-expanded") !== "true"));
      if (CLOSED_AT_FIRST.includes(group.dataset.group)) this.#open(group, false);
    }
    this.#wireTabs();
    const search = form.querySelector("[data-knob-search]");
    search.addEventListener("input", () => { this.#query = search.value.trim().toLowerCase(); this.show(); });
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") event.preventDefault();
      if (event.key === "Escape" && search.value) { search.value = ""; this.#query = ""; this.show(); event.preventDefault(); }
    });
  }

  get algorithm() {
    return this.#form.elements.algorithm.value;
  }

  /** What an input starts from under the chosen algorithm. */
  start(name, algorithm = this.algorithm) {
    return this.#facts.fields[name]?.start?.[algorithm] ?? { value: "", origin: "default" };
  }

  /** Carry knobs that were left at their start over to the start of the algorithm now chosen. */
  changeAlgorithm(from, to) {
    for (const [name, node] of inputs(this.#form)) {
      const known = this.#facts.fields[name];
      if (!known?.start?.[to]) continue;
      if (!known.start[from] || isSame(node.value, known.start[from].value)) node.value = known.start[to].value;
    }
  }

  /** The names that differ from where the form started, as the spec sees them. */
  changed() {
    const algorithm = this.algorithm;
    const found = [];
    for (const [name, node] of inputs(this.#form)) {
      if (name === "name" || name.startsWith("sweep.")) continue;
      const by = /^(model|data)\.id\.(\w+)$/.exec(name);
      if (by && this.#form.elements[`${by[1]}.kind`].value !== by[2]) continue;
      if (algorithm === "sft" && name.startsWith("reward.")) continue;
      const known = this.#facts.fields[name];
      if (known && !known.algorithms.includes(algorithm)) continue;
      if (!isSame(node.value, this.start(name).value)) found.push(name);
    }
    return found;
  }

  /** Paint marks, choose what is visible, count. */
  show() {
    const changed = new Set(this.changed());
    const algorithm = this.algorithm;
    for (const node of this.#form.querySelectorAll("[data-for]")) node.hidden = node.dataset.for !== algorithm;
    for (const node of this.#form.querySelectorAll("[data-kind-of]")) {
      const isChosen = this.#form.elements[node.dataset.kindOf].value === node.dataset.kind;
      node.hidden = !isChosen || (node.dataset.for !== undefined && node.dataset.for !== algorithm);
    }
    const counts = { essential: 0, changed: 0, all: 0 };
    for (const field of this.#fields()) {
      const names = field.dataset.name.split(" ");
      const mine = [...changed].filter((name) => names.some((n) => name === n || name.startsWith(`${n}.`)));
      this.#mark(field, mine);
      if (!("knob" in field.dataset)) continue;
      const applies = field.dataset.algorithms.split(" ").includes(algorithm);
      if (applies) {
        counts.all += 1;
        counts.essential += "essential" in field.dataset ? 1 : 0;
        counts.changed += mine.length ? 1 : 0;
      }
      field.hidden = !applies || !(this.#isWanted(field, mine.length > 0) || "problem" in field.dataset);
    }
    for (const [name, n] of Object.entries(counts)) this.#form.querySelector(`[data-show="${name}"] .count`).textContent = n;
    this.#showGroups();
    this.#sayChanges(changed.size);
  }

  /** Open the group that a field stands in. */
  openGroupOf(field) {
    const group = field.closest(".knob-group");
    if (group) this.#open(group, true);
  }

  /** Make a field visible wherever it hides, and return its input. */
  reveal(field) {
    const group = field.closest(".knob-group");
    if (group) this.#open(group, true);
    field.hidden = false;
    if (group) group.hidden = false;
    return [...field.querySelectorAll("input:not([type=hidden]), select, textarea")].find((node) => !node.closest("[hidden]"));
  }

  #fields() {
    return this.#form.querySelectorAll(".field[data-name]:not(.name-field)");
  }

  #isWanted(field, isChanged) {
    if (this.#query) {
      const known = this.#facts.fields[field.dataset.name] ?? {};
      return [field.dataset.name, known.label, known.flag].some((text) => text?.toLowerCase().includes(this.#query));
    }
    if (this.#shown === "changed") return isChanged;
    return this.#shown === "all" || "essential" in field.dataset;
  }

  #mark(field, mine) {
    const isChanged = mine.length > 0;
    field.toggleAttribute("data-changed", isChanged);
    const start = this.start(mine[0] ?? field.dataset.name.split(" ")[0]);
    const origin = field.querySelector(".origin");
    if (origin) {
      const who = isChanged ? "you" : start.origin;
      origin.dataset.origin = who;
      origin.title = { default: gettext("default"), recipe: gettext("set by the recipe"), you: gettext("set by you"), tuner: gettext("set by the tuner") }[who];
    }
    const was = field.querySelector("[data-restore]");
    was.hidden = !isChanged;
    if (!isChanged) return;
    const node = this.#form.elements[mine[0]];
    const option = node.tagName === "SELECT" ? [...node.options].find((o) => o.value === start.value) : null;
    const text = option?.textContent ?? start.value;
    was.textContent = text ? fill(gettext("was %(value)s"), { value: text.length > 24 ? `${text.slice(0, 24)}…` : text }) : gettext("was empty");
    was.title = gettext("Restore");
  }

  #addRestore(field, onRestore) {
    let was = field.querySelector("[data-restore]");
    if (!was) {
      was = Object.assign(document.createElement("button"), { type: "button", className: "was", hidden: true });
      was.dataset.restore = "";
      const head = field.querySelector(".field-head") ?? field.querySelector(".row-flex");
      head.append(was);
    }
    was.addEventListener("click", () => {
      const names = field.dataset.name.split(" ");
      const changed = this.changed().filter((name) => names.some((n) => name === n || name.startsWith(`${n}.`)));
      for (const name of changed) this.#form.elements[name].value = this.start(name).value;
      onRestore(changed);
      this.reveal(field)?.focus();
    });
  }

  #showGroups() {
    let numShown = 0;
    for (const group of this.#form.querySelectorAll(".knob-group:not(.reward-editor)")) {
      const shown = [...group.querySelectorAll(".field")].filter((field) => !field.hidden);
      group.hidden = shown.length === 0;
      numShown += shown.length;
      if (this.#query && shown.length) this.#open(group, true);
      const isOpen = group.querySelector("h3 button").getAttribute("aria-expanded") === "true";
      const said = shown.slice(0, 4).map((field) => {
        const node = field.querySelector("input, select, textarea");
        const value = node.tagName === "SELECT" ? node.selectedOptions[0]?.textContent : node.value;
        return value ? `${field.querySelector("label").textContent} ${value}` : "";
      });
      group.querySelector("[data-group-note]").textContent = isOpen ? "" : said.filter(Boolean).join(" · ");
    }
    const none = this.#form.querySelector("[data-no-knob]");
    none.hidden = numShown > 0;
    none.textContent = this.#query
      ? fill(gettext("No knob is named like “%(query)s”."), { query: this.#query })
      : gettext("Nothing differs from where this form started.");
  }

  #sayChanges(n) {
    const place = this.#form.querySelector("[data-num-changes]");
    place.textContent = fill(ngettext("%(n)s change", "%(n)s changes", n), { n });
  }

  #open(group, isOpen) {
    const button = group.querySelector("h3 button");
    if (button.getAttribute("aria-expanded") === String(isOpen)) return;
    button.setAttribute("aria-expanded", String(isOpen));
    document.getElementById(button.getAttribute("aria-controls")).hidden = !isOpen;
    if (!group.classList.contains("reward-editor")) queueMicrotask(() => this.#showGroups());
  }

  #wireTabs() {
    const tabs = [...this.#form.querySelectorAll("[data-show]")];
    const choose = (tab) => {
      this.#shown = tab.dataset.show;
      for (const other of tabs) {
        other.setAttribute("aria-selected", String(other === tab));
        other.tabIndex = other === tab ? 0 : -1;
      }
      if (this.#shown === "changed") for (const group of this.#form.querySelectorAll(".knob-group")) this.#open(group, true);
      this.show();
    };
    walkTabs(tabs, choose);
  }
}

/** Click and arrow keys for a row of tabs. */
export function walkTabs(tabs, choose) {
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(index + step + tabs.length) % tabs.length];
      next.focus();
      choose(next);
      event.preventDefault();
    });
  }
}
