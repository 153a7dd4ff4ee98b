// The sweep section of the form: which knobs vary, how points are chosen; what would be launched comes from the server.

import { find } from "../dom.js";
import { fill, gettext } from "../format.js";
import { Question } from "./ask.js";

const NO_COMMANDS = { cli: "", curl: "", spec: "", yaml: "", python: "", trainer: "" };
const FIELDS = ["id", "values", "low", "high"];

export class Sweep {
  /** `onAnswer()` is called when what the sweep would launch has changed; `onChange(names)` when its inputs have. */
  constructor(form, facts, problems, { onAnswer, onChange }) {
    this.form = form;
    this.facts = facts;
    this.problems = problems;
    this.onAnswer = onAnswer;
    this.onChange = onChange;
    this.label = "";
    this.commands = null;
    this.section = find("[data-sweep]", form);
    this.touched = new Set();
    const touch = (event) => this.touched.add(event.target.name);
    this.section.addEventListener("change", touch, { capture: true });
    this.question = new Question(this.section.dataset.url, form, {
      waitMs: 200,
      onAnswer: (answer) => this.#take(answer),
      onFailure: (sentence) => this.#fail(sentence),
    });
    find("[data-sweep-toggle]", this.section).addEventListener("click", () => {
      this.#input("on").value = this.isOn ? "" : "1";
      if (this.isOn) find('[name="sweep.knobs.0.id"]', this.section).focus();
      onChange(["sweep.on"]);
    });
    find("[data-sweep-add]", this.section).addEventListener("click", () => {
      const row = this.#rows().find((r) => r.hidden);
      if (!row) return;
      row.hidden = false;
      find("input", row).focus();
      this.#showAdd();
    });
    for (const button of this.section.querySelectorAll("[data-sweep-remove]")) {
      button.addEventListener("click", () => this.#remove(Number(button.dataset.sweepRemove)));
    }
    if (new URLSearchParams(location.search).get("sweep") === "1" && !this.isOn) this.#input("on").value = "1";
  }

  get isOn() {
    return this.#input("on").value === "1";
  }

  get launchUrl() {
    return this.section.dataset.launchUrl ?? "";
  }

  /** Paint the section as its inputs stand, and ask what they would launch. */
  changed() {
    const { isOn } = this;
    this.section.toggleAttribute("data-on", isOn);
    find("[data-sweep-toggle]", this.section).setAttribute("aria-expanded", String(isOn));
    find("[data-sweep-body]", this.section).hidden = !isOn;
    this.#listKnobs();
    const isRandom = this.#input("method").value === "random";
    for (const [place, row] of this.#rows().entries()) {
      if (FIELDS.some((name) => this.#knob(place, name).value.trim())) row.hidden = false;
      const kind = this.#knob(place, "kind");
      const known = this.facts.fields[`knobs.${this.#knob(place, "id").value.trim()}`];
      const mayDraw = isRandom && (!known || known.kind === "number");
      kind.closest(".field").hidden = !mayDraw;
      const takes = mayDraw ? kind.value : "values";
      for (const node of row.querySelectorAll("[data-takes]")) node.hidden = node.dataset.takes !== takes;
      find("[data-sweep-takes]", row).textContent = known
        ? this.#hint(known, this.#knob(place, "id").value.trim())
        : "";
    }
    this.#input("num_runs").placeholder = isRandom ? "" : gettext("all");
    this.#showAdd();
    if (isOn) {
      this.commands ??= NO_COMMANDS; // those of the single run would launch something else
      this.question.ask();
    } else {
      this.question.cancel();
      this.label = "";
      this.commands = null;
      this.problems.set("sweep", []);
      this.onAnswer();
    }
  }

  #take(answer) {
    this.problems.set(
      "sweep",
      answer.problems.filter((p) => p.field.startsWith("sweep") && !this.#isTooEarly(p.field)),
    );
    const place = find("[data-sweep-summary]", this.section);
    place.classList.toggle("is-stale", answer.problems.length > 0);
    if (!answer.problems.length) {
      place.innerHTML = answer.summary; // escaped by the server's template
      this.label = answer.launch;
      this.commands = answer.commands;
    } else this.label = gettext("Launch the sweep");
    this.onAnswer();
  }

  // What nobody has been at yet is not wrong, only not filled in; the launch says it all the same.
  #isTooEarly(field) {
    if (field === "sweep.knobs") return !this.touched.has("sweep.knobs.0.id");
    const node = this.form.elements[field];
    return Boolean(node) && node.value === "" && !this.touched.has(field);
  }

  #fail(sentence) {
    this.label = gettext("Launch the sweep");
    this.problems.set("sweep", [{ field: "sweep", message: sentence }]);
    this.onAnswer();
  }

  /** Empty a row, moving those below it up. */
  #remove(place) {
    const rows = this.#rows();
    for (let at = place; at < rows.length; at += 1) {
      for (const name of [...FIELDS, "kind", "scale"]) {
        const fresh = { kind: "values", scale: "linear" }[name] ?? "";
        this.#knob(at, name).value = at + 1 < rows.length ? this.#knob(at + 1, name).value : fresh;
      }
    }
    rows.forEach((row, at) => {
      if (at) row.hidden = !FIELDS.some((name) => this.#knob(at, name).value.trim());
    });
    this.onChange(["sweep.knobs"]);
  }

  #listKnobs() {
    const list = find("#sweep-knobs");
    const { algorithm, trainer, version } = this.facts;
    const chosen = [trainer, version, algorithm].join(" ");
    if (list.dataset.chosen === chosen) return;
    list.dataset.chosen = chosen;
    const mine = Object.entries(this.facts.fields).filter(([name]) => name.startsWith("knobs."));
    list.replaceChildren(
      ...mine.map(([name, known]) =>
        Object.assign(document.createElement("option"), { value: name.slice(6), label: known.label }),
      ),
    );
  }

  #hint(known, id) {
    const now = this.form.elements[`knobs.${id}`]?.value ?? "";
    return fill(gettext("%(label)s: %(allowed)s; the form has %(now)s"), {
      label: known.label,
      allowed: known.allowed,
      now,
    });
  }

  #showAdd() {
    find("[data-sweep-add]", this.section).hidden = this.#rows().every((row) => !row.hidden);
  }

  #rows() {
    return [...this.section.querySelectorAll("[data-sweep-row]")];
  }

  #input(name) {
    return this.form.elements[`sweep.${name}`];
  }

  #knob(place, name) {
    return this.form.elements[`sweep.knobs.${place}.${name}`];
  }
}
