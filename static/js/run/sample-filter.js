/** What the list of samples is asked for: the controls above it, what its charts choose, and both in the address. */

import { controls, find } from "../dom.js";
import { rangeOf, rangeText } from "./sample-range.js";

/** @import { Range } from "./sample-range.js" */

export class SampleFilter {
  constructor(/** @type {import("../query.js").Query} */ query) {
    this.query = query;
    this.form = find("form[data-sample-filter]");
    const { q, step, variance, review } = controls(this.form);
    q.value = query.get("sq") ?? "";
    step.value = query.get("step") ?? "";
    for (const [control, value] of /** @type {const} */ ([
      [variance, query.get("variance")],
      [review, query.get("review")],
    ]))
      if ([...control.querySelectorAll("option")].some((option) => option.value === value)) control.value = value ?? "";
    this.groupBox = find("input[name=groups]", this.form);
    this.groupBox.checked = query.get("groups") === "1";
    this.isEval = query.get("eval") ?? "";
    /** @type {Range} */
    this.reward = rangeOf(query.get("reward"));
    this.prompt = query.get("prompt") ?? ""; // its key
    this.groupOf = query.get("group_of") ?? ""; // the id of a sample
  }

  get byGroup() {
    return this.groupBox.checked;
  }

  get step() {
    return controls(this.form).step.value;
  }

  /** Whether it leaves anything out. */
  get isOn() {
    return [...this.params].length > 0;
  }

  /** What the API is asked for, without the page of the answer. */
  get params() {
    const { q, step, variance, review } = controls(this.form);
    const values = {
      q: q.value.trim(),
      step: step.value,
      is_eval: this.isEval,
      variance: variance.value,
      review: review.value,
      reward_from: this.reward.from,
      reward_below: this.reward.below,
      prompt: this.prompt,
      group_of: this.groupOf,
    };
    const params = new URLSearchParams();
    for (const [name, value] of Object.entries(values))
      if (value !== "" && value !== null) params.set(name, String(value));
    return params;
  }

  /** Show in the controls what holds, and keep it in the address. */
  write() {
    const { q, step, variance, review } = controls(this.form);
    for (const button of this.form.querySelectorAll("[data-eval]"))
      button.setAttribute("aria-pressed", String(button.dataset.eval === this.isEval));
    const kept = {
      sq: q.value.trim(),
      step: step.value,
      eval: this.isEval,
      groups: this.byGroup ? "1" : "",
      variance: variance.value,
      review: review.value,
      reward: rangeText(this.reward),
      prompt: this.prompt,
      group_of: this.groupOf,
    };
    for (const [name, value] of Object.entries(kept)) this.query.set(name, value);
  }

  /** Show the same prompt at all steps, step by step. */
  choosePrompt(/** @type {string} */ key) {
    this.clear();
    this.prompt = key;
    this.groupBox.checked = true;
  }

  /** Show the group of one sample. */
  chooseGroup(/** @type {number} */ id) {
    this.clear();
    this.groupOf = String(id);
  }

  /** Leave nothing out. */
  clear() {
    for (const name of ["q", "step", "variance", "review"]) controls(this.form)[name].value = "";
    this.isEval = "";
    this.reward = { from: null, below: null };
    this.prompt = "";
    this.groupOf = "";
  }
}
