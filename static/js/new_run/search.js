// What a search of the form finds beside its knobs: fields above them, knobs of other trainers, what no run has to say.

import { around, find } from "../dom.js";
import { el, fill, gettext, ngettext } from "../format.js";
import { asQuery, knobIndex, optionOf, rankOf } from "./index.js";

const MOST_ROWS = 12; // of a list; the rest is counted

/** @import { Known, Option } from "./index.js" */

export class Search {
  #form;
  #facts;
  /** @type {Record<string, Known>} */
  #known = {}; // by the input's name, once somebody has searched
  /** @type {Option[]} */
  #told = [];

  /** `onChange()` is called when another query stands there, and when more is known; `onGo(field)` brings one into sight. */
  constructor(form, facts, { onChange, onGo }) {
    this.#form = form;
    this.#facts = facts;
    this.query = "";
    this.typed = "";
    const input = form.querySelector("[data-knob-search]");
    const look = async () => {
      this.#take(input);
      onChange();
      if (!this.query) return;
      await this.#learn();
      onChange();
    };
    input.addEventListener("focus", () => this.#learn(), { once: true });
    input.addEventListener("input", look);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") event.preventDefault();
      if (event.key !== "Escape" || !input.value) return;
      input.value = "";
      event.preventDefault();
      look();
    });
    find("[data-above]", form).addEventListener("click", (event) => {
      const name = around(event, "[data-go]")?.dataset.go;
      if (name) onGo(this.#fields().get(name));
    });
  }

  /** True if the query is about this input: by its name, its label, or a framework's flag. */
  finds(name) {
    const known = this.#facts.fields[name] ?? {};
    const isNamed =
      rankOf(name, this.query) !== null ||
      [known.label, known.flag].some((text) => text?.toLowerCase().includes(this.query));
    return isNamed || Boolean(this.option(name));
  }

  /** The option of an input that the query is about, if it is one. */
  option(name) {
    return this.query ? optionOf(this.#known[name], this.query) : null;
  }

  /** Paint the lists below the knobs; true if there is anything in them. */
  show() {
    /** @type {Record<string, [rank: number, row: HTMLElement][]>} */
    const lists = { above: [], elsewhere: [], told: [] };
    if (this.query) {
      const fields = this.#fields();
      for (const [name, known] of Object.entries(this.#known)) this.#place(name, known, fields.get(name), lists);
      for (const told of this.#told) {
        const rank = rankOf(told.name, this.query);
        if (rank !== null)
          lists.told.push([
            rank,
            el("li", {}, el("code", {}, told.name), el("span", { class: "faint" }, `${told.whose}: ${told.why}`)),
          ]);
      }
    }
    for (const [name, rows] of Object.entries(lists)) this.#paint(name, rows);
    return Object.values(lists).some((rows) => rows.length > 0);
  }

  #take(input) {
    this.typed = input.value.trim();
    this.query = asQuery(input.value);
  }

  async #learn() {
    const { knobs, fields, told } = await knobIndex(this.#form);
    this.#known = { ...knobs, ...fields };
    this.#told = told;
  }

  /** Sort an input into the list where it belongs; knobs of this run are shown where they stand. */
  #place(name, known, field, lists) {
    if (field && "knob" in field.dataset) return;
    const found = optionOf(known, this.query);
    const label = field?.querySelector("label")?.textContent || known.label;
    const rank = found?.rank ?? rankOf(name, this.query) ?? (label.toLowerCase().includes(this.query) ? 2 : null);
    if (rank === null) return;
    const isMeant = field && !field.hidden && !field.closest(".knob-group[hidden]");
    if (isMeant) {
      const said = found
        ? [el("code", {}, found.name), el("span", { class: "faint" }, found.whose)]
        : [el("code", {}, name)];
      const row = el("li", {}, el("button", { type: "button", class: "link", "data-go": name }, label), ...said);
      if (!lists.above.some(([, other]) => other.textContent === row.textContent)) lists.above.push([rank, row]);
      return;
    }
    const flag = found ?? known.flags[0];
    const who =
      flag && (flag.algorithms.length ? `${flag.whose}: ${this.#algorithmsText(flag.algorithms)}` : flag.whose);
    lists.elsewhere.push([
      rank,
      el("li", {}, el("b", {}, label), el("code", {}, flag?.name ?? name), el("span", { class: "faint" }, who ?? "")),
    ]);
  }

  /** The fields of the page by the names of the spec's inputs that stand in them. */
  #fields() {
    const found = new Map();
    for (const field of this.#form.querySelectorAll(".field[data-name]"))
      for (const name of field.dataset.name.split(" ")) found.set(name, field);
    return found;
  }

  #paint(name, rows) {
    const place = find(`[data-${name}]`, this.#form);
    place.hidden = rows.length === 0;
    const shown = rows
      .sort(([a], [b]) => a - b)
      .slice(0, MOST_ROWS)
      .map(([, row]) => row);
    const rest = rows.length - shown.length;
    if (rest)
      shown.push(el("li", { class: "faint" }, fill(ngettext("and %(n)s more", "and %(n)s more", rest), { n: rest })));
    find("ul", place).replaceChildren(...shown);
  }

  #algorithmsText(ids) {
    const labels = ids.map((id) => this.#facts.algorithms[id]?.label ?? id);
    return labels.length > 4
      ? fill(gettext("%(first)s and %(n)s more"), { first: labels.slice(0, 3).join(", "), n: labels.length - 3 })
      : labels.join(", ");
  }
}
