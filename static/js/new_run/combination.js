// Trainer, version and algorithm: what can be chosen together, and the groups of knobs that each combination has. The
// device decides what they start from.

import { find } from "../dom.js";
import { gettext } from "../format.js";
import { post, Unanswered } from "./ask.js";
import { inputs } from "./state.js";

export const NAMES = ["algorithm", "trainer.name", "trainer.version", "hardware.device"];

export class Combination {
  #form;
  #facts;
  #place;
  #shown; // key of the combination whose groups stand in the page
  #asked = 0;
  #answers = new Map();
  #parked = new Map(); // texts of knobs that the shown combination does not have

  /** `onShown()` is called when other groups stand in the page and `facts` is of them. */
  constructor(form, facts, { onShown }) {
    this.onShown = onShown;
    this.#form = form;
    this.#facts = facts;
    this.#place = form.querySelector("[data-groups]");
    this.#offer();
    this.#shown = this.#key(this.#texts());
  }

  /** True while what is chosen is not what is shown. */
  get isBehind() {
    return this.#key(this.#texts()) !== this.#shown;
  }

  /** Words by which parts of the page say when they show. */
  get words() {
    const { algorithm, "trainer.name": trainer } = this.#texts();
    return [
      algorithm,
      ...(this.#facts.algorithms[algorithm]?.families ?? []),
      trainer,
      trainer === "native" ? "native" : "foreign",
    ];
  }

  /** Leave only what there is to choose, after one of them has changed. */
  settle() {
    this.#offer();
  }

  /** Show the groups of what is chosen; `carry()` gives the texts to keep. False if something newer is on its way. */
  async show(carry) {
    const texts = this.#texts();
    const key = this.#key(texts);
    const number = ++this.#asked;
    const answer = await this.#answerOf(key, texts);
    if (number !== this.#asked) return false;
    for (const [name, text] of Object.entries(carry())) this.#parked.set(name, text);
    this.#place.innerHTML = answer.html; // escaped by the server's template
    Object.assign(this.#facts, answer.facts);
    this.#shown = key;
    const here = inputs(this.#form);
    for (const [name, text] of [...this.#parked]) {
      const node = here.get(name);
      if (!node) continue;
      if (node.tagName !== "SELECT" || [...node.options].some((option) => option.value === text)) node.value = text;
      this.#parked.delete(name);
    }
    this.onShown();
    return true;
  }

  /** Put back the choice whose groups are shown. */
  revert() {
    const texts = JSON.parse(this.#shown);
    this.#form.elements.base.value = texts.pop();
    this.choose(Object.fromEntries(NAMES.map((name, number) => [name, texts[number]])));
  }

  /** Choose; names that are missing stay. */
  choose(texts) {
    const wanted = { ...this.#texts(), ...texts };
    for (const name of ["trainer.name", "hardware.device"]) this.#form.elements[name].value = wanted[name];
    this.#offer(wanted);
  }

  forget() {
    this.#parked.clear();
  }

  #texts() {
    return Object.fromEntries(NAMES.map((name) => [name, this.#form.elements[name].value]));
  }

  #key(texts) {
    return JSON.stringify([...NAMES.map((name) => texts[name]), this.#form.elements.base.value]);
  }

  async #answerOf(key, texts) {
    if (!this.#answers.has(key)) {
      const body = new URLSearchParams({ ...texts, base: this.#form.elements.base.value });
      const { status, answer } = await post(this.#form.dataset.knobs, this.#form, { body });
      if (status !== 200)
        throw new Unanswered(gettext("The console failed to answer this. Its log says why; nothing is lost here."));
      this.#answers.set(key, answer);
    }
    return this.#answers.get(key);
  }

  /** Fill the lists of versions and algorithms with what the trainer offers; what is wanted and not offered gives way. */
  #offer(wanted = this.#texts()) {
    const trainer = this.#facts.trainers[this.#form.elements["trainer.name"].value];
    const versions = Object.keys(trainer.versions);
    const version = versions.includes(wanted["trainer.version"]) ? wanted["trainer.version"] : versions[0];
    this.#fill(
      "trainer.version",
      versions.map((v) => [v, v]),
      version,
    );
    const offered = trainer.versions[version];
    const families = this.#facts.algorithms[wanted.algorithm]?.families ?? [];
    const related = offered.find((a) => families.every((f) => this.#facts.algorithms[a].families.includes(f)));
    const algorithm = offered.includes(wanted.algorithm) ? wanted.algorithm : (related ?? offered[0]);
    this.#fill(
      "algorithm",
      offered.map((a) => [a, this.#facts.algorithms[a].label]),
      algorithm,
    );
    this.#say("[data-trainer-help]", trainer.help);
    this.#say("[data-algorithm-help]", this.#facts.algorithms[algorithm].help);
  }

  #fill(name, choices, value) {
    const node = this.#form.elements[name];
    const now = [...node.options].map((option) => option.value);
    if (JSON.stringify(now) !== JSON.stringify(choices.map(([id]) => id))) {
      node.replaceChildren(
        ...choices.map(([id, label]) =>
          Object.assign(document.createElement("option"), { value: id, textContent: label }),
        ),
      );
    }
    node.value = value;
  }

  #say(selector, text) {
    const node = find(selector, this.#form);
    node.textContent = text;
    node.title = text;
  }
}
