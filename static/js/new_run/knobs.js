// The knobs of the form: which are shown, who chose each value, what it was, and how to get that back.

import { around, find } from "../dom.js";
import { fill, gettext, ngettext } from "../format.js";
import { plainNumber } from "./parts.js";
import { Search } from "./search.js";
import { inputs } from "./state.js";

const OPEN_AT_FIRST = [
  "resources",
  "train",
  "rollout",
  "algorithm",
  "optimizer",
  "memory",
  "placement",
  "profile",
  "policy",
  "reward-file",
];

/** True if both texts say the same value: 0.0003 is 3e-4, and 1,000 is 1000. */
function isSame(text, other) {
  const [a, b] = [text, other].map(plainNumber);
  return text === other || a === b || (a !== "" && b !== "" && Number(a) === Number(b));
}

export class Knobs {
  #form;
  #facts;
  #shown = "essential";
  #search;
  #closed = new Map(); // group -> whether somebody closed it

  /** `words()` gives the words by which parts of the page say when they show. */
  constructor(form, facts, { onRestore, words }) {
    this.#form = form;
    this.#facts = facts;
    this.words = words;
    find(".new-run-form", form).addEventListener("click", (event) => {
      const was = around(event, "[data-restore]");
      if (was) this.#restore(was.closest(".field"), onRestore);
      const button = around(event, ".knob-group h3 button");
      const group = button?.closest(".knob-group");
      if (button && group) {
        this.#open(group, button.getAttribute("aria-expanded") !== "true");
        this.#closed.set(group.dataset.group, button.getAttribute("aria-expanded") !== "true");
      }
    });
    this.adopt();
    this.#wireTabs();
    this.#search = new Search(form, facts, {
      onChange: () => this.show(),
      onGo: (field) => {
        this.reveal(field)?.focus();
        field.scrollIntoView({ block: "center" });
      },
    });
  }

  /** Take the groups that now stand in the page: close those that nobody needs at first. */
  adopt() {
    for (const field of this.#fields()) this.#addRestore(field);
    for (const group of this.#form.querySelectorAll(".knob-group")) {
      const name = group.dataset.group;
      if (this.#closed.get(name) ?? !OPEN_AT_FIRST.includes(name)) this.#open(group, false);
    }
  }

  /** What an input starts from. */
  start(name) {
    return this.#facts.fields[name]?.start ?? { value: "", origin: "default" };
  }

  /** The names that differ from where the form started, as the spec sees them. */
  changed() {
    const words = this.words();
    const found = [];
    const isOtherTrainer = this.#form.elements["trainer.name"].value !== this.start("trainer.name").value;
    for (const [name, node] of inputs(this.#form)) {
      if (["name", "base", "overridden"].includes(name) || /^(sweep|plan)\./.test(name)) continue;
      if (name === "trainer.version" && isOtherTrainer) continue; // the trainer says it
      const by = /^(model|data)\.id\.(\w+)$/.exec(name);
      if (by && this.#form.elements[`${by[1]}.kind`].value !== by[2]) continue;
      if (!words.includes("rl") && name.startsWith("reward.")) continue;
      if (!isSame(node.value, this.start(name).value)) found.push(name);
    }
    return found;
  }

  /** Paint marks, choose what is visible, count. */
  show() {
    const changed = new Set(this.changed());
    const words = this.words();
    const isMeant = (node) =>
      node.dataset.for === undefined || node.dataset.for.split(" ").some((word) => words.includes(word));
    for (const node of this.#form.querySelectorAll("[data-for]")) {
      node.hidden = !isMeant(node);
      if (node.tagName === "OPTION") node.disabled = node.hidden && !node.selected;
    }
    for (const node of this.#form.querySelectorAll("[data-kind-of]")) {
      const isChosen = node.dataset.kind.split(" ").includes(this.#form.elements[node.dataset.kindOf].value);
      node.hidden = !isChosen || !isMeant(node);
    }
    const counts = { essential: 0, changed: 0, all: 0 };
    for (const field of this.#fields()) {
      const names = field.dataset.name.split(" ");
      const mine = [...changed].filter((name) => names.some((n) => name === n || name.startsWith(`${n}.`)));
      this.#mark(field, mine);
      if (!("knob" in field.dataset)) continue;
      counts.all += 1;
      counts.essential += "essential" in field.dataset ? 1 : 0;
      counts.changed += mine.length ? 1 : 0;
      field.hidden = !(this.#isWanted(field, mine.length > 0) || "problem" in field.dataset);
      this.#sayNeeds(field);
      this.#showOption(field);
    }
    for (const [name, n] of Object.entries(counts))
      find(`[data-show="${name}"] .count`, this.#form).textContent = String(n);
    this.#showGroups(this.#search.show());
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
    return [...field.querySelectorAll("input:not([type=hidden]), select, textarea")].find(
      (node) => !node.closest("[hidden]"),
    );
  }

  #fields() {
    return this.#form.querySelectorAll(".field[data-name]:not(.name-field)");
  }

  #isWanted(field, isChanged) {
    if (this.#search.query) return this.#search.finds(field.dataset.name);
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
      origin.title = {
        default: gettext("default"),
        recipe: gettext("set by the recipe"),
        you: gettext("set by you"),
        tuner: gettext("set by the tuner"),
      }[who];
    }
    const was = find("[data-restore]", field);
    was.hidden = !isChanged;
    if (!isChanged) return;
    const node = this.#form.elements[mine[0]];
    const option = node.tagName === "SELECT" ? [...node.options].find((o) => o.value === start.value) : null;
    const text = option?.textContent ?? start.value;
    was.textContent = text
      ? fill(gettext("was %(value)s"), { value: text.length > 24 ? `${text.slice(0, 24)}…` : text })
      : gettext("was empty");
    was.title = gettext("Restore");
  }

  #addRestore(field) {
    if (field.querySelector("[data-restore]")) return;
    const was = Object.assign(document.createElement("button"), { type: "button", className: "was", hidden: true });
    was.dataset.restore = "";
    (field.querySelector(".field-head") ?? field.querySelector(".row-flex")).append(was);
  }

  #restore(field, onRestore) {
    const names = field.dataset.name.split(" ");
    const changed = this.changed().filter((name) => names.some((n) => name === n || name.startsWith(`${n}.`)));
    for (const name of changed) this.#form.elements[name].value = this.start(name).value;
    onRestore(changed);
    this.reveal(field)?.focus();
  }

  /** Grey a knob that means nothing beside the others, and say why; it stays editable. */
  #sayNeeds(field) {
    const place = field.querySelector("[data-needs]");
    if (!place) return;
    const unmet = this.#unmet(field.dataset.name);
    field.toggleAttribute("data-idle", Boolean(unmet));
    place.hidden = !unmet;
    if (!unmet) return;
    const [name, values, above] = unmet;
    const words = {
      label: this.#facts.fields[name].label,
      values:
        above === null
          ? values.map((v) => this.#optionText(name, v)).join(gettext(" or "))
          : fill(gettext("above %(n)s"), { n: above }),
    };
    place.textContent = fill(gettext("Means something with %(label)s: %(values)s"), words);
  }

  /** The first need of an input that the form as it stands does not meet; also of what it needs in turn. */
  #unmet(name, above = []) {
    if (above.includes(name)) return null;
    for (const need of this.#facts.fields[name]?.needs ?? []) {
      const node = this.#form.elements[need[0]];
      if (!node) continue; // the run has no such knob, so nothing is asked of it
      const isMet =
        need[2] === null
          ? need[1].some((value) => isSame(node.value, value))
          : Number(plainNumber(node.value)) > need[2];
      if (!isMet) return need;
      const further = this.#unmet(need[0], [...above, name]);
      if (further) return further;
    }
    return null;
  }

  #optionText(name, value) {
    const node = this.#form.elements[name];
    const option = node.tagName === "SELECT" ? [...node.options].find((o) => o.value === value) : null;
    return option?.textContent ?? (value || gettext("not set"));
  }

  /** Beside its own flag, the one that was searched for, and whose it is. */
  #showOption(field) {
    const place = field.querySelector(".flag");
    const known = this.#facts.fields[field.dataset.name];
    if (!place || !known) return;
    const found = known.flag.toLowerCase().includes(this.#search.query)
      ? null
      : this.#search.option(field.dataset.name);
    const text = found ? `${known.flag} · ${found.whose}: ${found.name}` : known.flag;
    if (place.textContent !== text) {
      place.textContent = text;
      place.title = text;
    }
  }

  /** Groups with nothing in them go; `isElsewhere` says that the search found something outside of them. */
  #showGroups(isElsewhere = this.#search.show()) {
    let numShown = 0;
    for (const group of this.#form.querySelectorAll(".knob-group:not(.reward-editor)")) {
      const shown = [...group.querySelectorAll(".field")].filter((field) => !field.hidden);
      group.hidden = shown.length === 0;
      numShown += shown.length;
      if (this.#search.query && shown.length) this.#open(group, true);
      const isOpen = find("h3 button", group).getAttribute("aria-expanded") === "true";
      const said = shown.slice(0, 4).map((field) => {
        const node = find("input, select, textarea", field);
        const value = node instanceof HTMLSelectElement ? node.selectedOptions[0]?.textContent : node.value;
        return value ? `${find("label", field).textContent} ${value}` : "";
      });
      find("[data-group-note]", group).textContent = isOpen ? "" : said.filter(Boolean).join(" · ");
    }
    const none = find("[data-no-knob]", this.#form);
    none.hidden = numShown > 0 || isElsewhere;
    none.textContent = this.#search.query
      ? fill(gettext("No knob, field or flag is named like “%(query)s”."), { query: this.#search.typed })
      : gettext("Nothing differs from where this form started.");
  }

  #sayChanges(n) {
    const recipe = this.#form.querySelector("[data-recipe-line]");
    if (recipe)
      recipe.textContent = this.#facts.recipe
        ? `${fill(gettext("From %(recipe)s"), { recipe: this.#facts.recipe })}, `
        : "";
    const place = find("[data-num-changes]", this.#form);
    place.textContent = fill(ngettext("%(n)s change", "%(n)s changes", n), { n });
  }

  #open(group, isOpen) {
    const button = find("h3 button", group);
    if (button.getAttribute("aria-expanded") === String(isOpen)) return;
    button.setAttribute("aria-expanded", String(isOpen));
    find(`#${button.getAttribute("aria-controls")}`).hidden = !isOpen;
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
      if (this.#shown === "changed")
        for (const group of this.#form.querySelectorAll(".knob-group")) this.#open(group, true);
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
