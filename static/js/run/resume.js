/** Start an ended run again: which checkpoint, on how many ranks, up to which step. The console says what cannot be. */

import { get, send } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { bytes, el, fill, gettext, grouped, write } from "../format.js";
import { toast } from "../toast.js";

const ENDED = ["finished", "failed", "stopped"];
const find = (selector) => document.querySelector(selector);
const field = (name) => find(`[data-field="${name}"]`);

export class Resume {
  constructor({ page, query }) {
    Object.assign(this, { page, query });
    this.button = find('[data-action="resume"]');
    this.form = find('[data-form="resume"]');
    if (!this.form) return; // viewers look on
    this.button.addEventListener("click", () => this.open());
    this.form.addEventListener("submit", (event) => this.#submit(event));
    this.form.addEventListener("input", () => write(field("resume-problem"), ""));
  }

  /** Offer it once the run has ended, as the thing to do where it failed and does not start again by itself. */
  show(header) {
    this.header = header;
    for (const name of ["resume-note", "resume-refusal"])
      field(name)?.toggleAttribute("hidden", !ENDED.includes(header.state));
    if (!this.form) return;
    this.button.hidden = !ENDED.includes(header.state);
    this.button.classList.toggle("btn-primary", header.state === "failed" && !header.retry?.at);
    if (this.query.get("resume") && !this.button.hidden) {
      this.query.set("resume", "");
      this.open();
    }
  }

  async open() {
    this.button.disabled = true;
    try {
      const answer = await get(`${this.page.api}/checkpoints`);
      this.#fill(answer);
      find('[data-dialog="resume"]').showModal();
    } catch (error) {
      toast(error.message, { isError: true });
    } finally {
      this.button.disabled = false;
    }
  }

  #fill({ checkpoints, hardware, num_steps: numSteps }) {
    const { elements } = this.form;
    const title = this.page.isNative ? gettext("Resume %(name)s") : gettext("Start %(name)s again");
    write(field("resume-title"), fill(title, { name: this.header.name }));
    write(field("resume-problem"), "");
    const name = checkpoints.find((one) => one.score_name)?.score_name;
    this.score = this.page.metrics[name] ?? { label: name ?? gettext("Score"), unit: numbers.unitOf(name ?? "") };
    write(field("resume-score"), this.score.label);
    for (const part of ["resume-head", "resume-how"]) field(part).hidden = checkpoints.length === 0;
    field("resume-none").hidden = checkpoints.length > 0;
    this.before = { policy_ranks: hardware.policy_ranks, num_steps: numSteps };
    elements.policy_ranks.value = hardware.policy_ranks ?? 1;
    elements.num_steps.value = numSteps;
    field("resume-size").hidden = !this.page.isNative; // knobs of other trainers say both
    for (const input of [elements.policy_ranks, elements.num_steps]) input.disabled = !this.page.isNative;
    const whole = checkpoints.filter((one) => !one.problem); // a lost one can still be chosen: its node may be back
    const usable = whole.find((one) => one.is_visible) ?? whole[0];
    const rows = checkpoints.map((one) => this.#row(one, one === usable));
    rows.push(
      el(
        "tr",
        {},
        el(
          "td",
          { colspan: 5 },
          choice("", !usable, gettext("the start: nothing of what was done stays in the history")),
        ),
      ),
    );
    find("[data-checkpoints]").replaceChildren(...rows);
  }

  #row(one, isChosen) {
    const at = new Date(one.created_at);
    return el(
      "tr",
      { class: one.is_visible ? "" : "is-dead" },
      el(
        "td",
        {},
        choice(`${one.attempt}|${one.step}`, isChosen, fill(gettext("step %(step)s"), { step: grouped(one.step) })),
        one.is_visible
          ? null
          : el("span", { class: "tag", title: gettext("Its step was resumed past") }, gettext("dead branch")),
        one.problem ? el("span", { class: "tag" }, gettext("lost")) : null,
        one.problem ? el("span", { class: "faint small run-attempt-cause" }, one.problem) : null,
      ),
      el("td", { class: "num" }, numbers.metric(one.score, this.score.unit)),
      el("td", { class: "num" }, bytes(one.size)),
      el("td", { class: "num" }, grouped(one.attempt)),
      el("td", { class: "num", title: numbers.moment(at) }, numbers.clock(at)),
    );
  }

  #asked() {
    const { elements } = this.form;
    const [attempt, step] = elements.checkpoint.value.split("|").map(Number);
    const asked = elements.checkpoint.value ? { step, attempt } : { step: null };
    if (!this.page.isNative) return asked;
    const ranks = Number(elements.policy_ranks.value);
    const steps = Number(elements.num_steps.value);
    if (ranks !== this.before.policy_ranks) asked.hardware = { policy_ranks: ranks };
    if (steps !== this.before.num_steps) asked.num_steps = steps;
    return asked;
  }

  async #submit(event) {
    event.preventDefault();
    const button = field("resume-submit");
    if (button.disabled) return;
    button.disabled = true;
    try {
      const { attempt } = await send("POST", `${this.page.api}/resume`, this.#asked());
      find('[data-dialog="resume"]').close();
      toast(fill(gettext("Queued again as attempt %(number)s"), { number: attempt }));
    } catch (error) {
      write(field("resume-problem"), error.message);
    } finally {
      button.disabled = false;
    }
  }
}

function choice(value, isChosen, text) {
  return el(
    "label",
    { class: "check" },
    el("input", { type: "radio", name: "checkpoint", value, checked: isChosen }),
    ` ${text}`,
  );
}
