// What is wrong, beside the field it is about. Each source (the form's own check, preview, reward, launch) says its own.

import { find } from "../dom.js";

export class Problems {
  #form;
  #knobs;
  #sources = new Map();
  #touched = new Set();

  constructor(form, knobs) {
    this.#form = form;
    this.#knobs = knobs;
  }

  set(source, problems) {
    this.#sources.set(source, problems);
    this.show();
  }

  /** Someone is at work on this input: what launch said of it may no longer hold. */
  touch(name) {
    this.#touched.add(name);
    for (const source of ["launch", "reward"]) {
      const left = (this.#sources.get(source) ?? []).filter((p) => p.field && !this.#isAbout(p.field, name));
      this.#sources.set(source, left);
    }
  }

  of(source) {
    return this.#sources.get(source) ?? [];
  }

  /** Every problem of every source, one per field and sentence. */
  all() {
    const found = new Map();
    for (const problem of [...this.#sources.values()].flat()) found.set(`${problem.field} ${problem.message}`, problem);
    return [...found.values()];
  }

  show() {
    const problems = this.all();
    const placed = new Set();
    for (const slot of this.#form.querySelectorAll("[data-error-for]")) {
      const names = slot.dataset.errorFor.split(" ");
      const holds = (/** @type {string} */ name, /** @type {string} */ field) =>
        name.endsWith(".*") ? field.startsWith(name.slice(0, -1)) : name === field;
      const mine = problems.filter((p) => names.some((name) => holds(name, p.field)));
      const told = mine.filter((p) => !this.#isTooEarly(p));
      for (const problem of mine) placed.add(problem);
      const field = slot.closest(".field");
      const text = [...new Set(told.map((p) => p.message))].join(" ");
      if (slot.textContent !== text) slot.textContent = text;
      if (told.length && !field.hasAttribute("data-problem")) this.#knobs.openGroupOf(field);
      field.toggleAttribute("data-problem", told.length > 0);
      for (const node of field.querySelectorAll("input, select, textarea")) {
        const isWrong = told.some((p) => this.#isAbout(p.field, node.name));
        if (isWrong) node.setAttribute("aria-invalid", "true");
        else node.removeAttribute("aria-invalid");
      }
    }
    const rest = problems.filter((p) => !placed.has(p));
    const notice = find("[data-form-problems]", this.#form);
    notice.hidden = rest.length === 0;
    find("p", notice).textContent = rest.map((p) => (p.field ? `${p.field}: ${p.message}` : p.message)).join(" ");
    this.#knobs.show();
  }

  /** Say everything, also of inputs nobody has been at yet, and put the focus on the first. */
  focusFirst() {
    for (const problem of this.all()) this.#touched.add(problem.field);
    this.show();
    const field = [...this.#form.querySelectorAll(".field[data-problem]:not(.plan-on)")][0]; // a what-if holds no launch up
    if (!field) {
      const notice = find("[data-form-problems]", this.#form);
      notice.tabIndex = -1;
      notice.focus();
      return;
    }
    this.#knobs.reveal(field);
    const wrong = [...field.querySelectorAll("[aria-invalid]")].find(
      (node) => !node.closest("[hidden]") && node.type !== "hidden",
    );
    const target = wrong ?? this.#knobs.reveal(field);
    target?.focus();
    field.scrollIntoView({ block: "nearest" });
  }

  #isAbout(problemField, name) {
    return name === problemField || name.startsWith(`${problemField}.`);
  }

  // An empty input that nobody has touched is not wrong yet, only not filled in. Others than the form's own check know better.
  #isTooEarly(problem) {
    if (!this.of("form").includes(problem)) return false;
    if ([...this.#touched].some((name) => this.#isAbout(problem.field, name))) return false;
    const kind = this.#form.elements[problem.field.replace(/\.id$/, ".kind")]?.value;
    const node = this.#form.elements[problem.field] ?? this.#form.elements[`${problem.field}.${kind}`];
    return Boolean(node) && node.value === "";
  }
}
