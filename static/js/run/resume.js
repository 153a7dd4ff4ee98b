/** Start an ended run again: which checkpoint, on how many ranks, up to which step. The console says what cannot be. */

import { get, send } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { controls, field, find } from "../dom.js";
import { bytes, el, fill, gettext, grouped, messageOf, write } from "../format.js";
import { toast } from "../toast.js";

const ENDED = ["finished", "failed", "stopped"];

export class Resume {
  /** @type {Record<string, Control>} */
  fields = {};
  before = { policy_ranks: 0, num_steps: 0 };

  constructor({ page, query }) {
    this.page = page;
    this.query = query;
    this.button = document.querySelector('button[data-action="resume"]');
    const form = document.querySelector('form[data-form="resume"]');
    if (!this.button || !form) return; // viewers look on
    this.fields = controls(form);
    this.button.addEventListener("click", () => this.open());
    form.addEventListener("submit", (event) => this.#submit(event));
    form.addEventListener("input", () => write(field("resume-problem"), ""));
    document.addEventListener("htmx:afterSettle", () => this.#emphasize()); // a card of the run may have come
  }

  /** Offer it once the run has ended. */
  show(header) {
    this.header = header;
    for (const name of ["resume-note", "resume-refusal"])
      document.querySelector(`[data-field="${name}"]`)?.toggleAttribute("hidden", !ENDED.includes(header.state));
    if (!this.button) return;
    this.button.hidden = !ENDED.includes(header.state);
    this.#emphasize();
    if (this.query.get("resume") && !this.button.hidden) {
      this.query.set("resume", "");
      this.open();
    }
  }

  /** Make it the thing to do where the run failed, does not start again by itself, and no clone is known to fit better:
   * a run that died of memory would die of it again. */
  #emphasize() {
    const { state, retry } = this.header ?? {};
    const hasRemedy = document.querySelector("[data-post-mortem] .btn-primary") !== null;
    this.button?.classList.toggle("btn-primary", state === "failed" && !retry?.at && !hasRemedy);
  }

  async open() {
    const { button } = this;
    if (!button) return;
    button.disabled = true;
    try {
      const answer = await get(`${this.page.api}/checkpoints`);
      this.#fill(answer);
      find('dialog[data-dialog="resume"]').showModal();
    } catch (error) {
      toast(messageOf(error), { isError: true });
    } finally {
      button.disabled = false;
    }
  }

  #fill({ checkpoints, hardware, num_steps: numSteps }) {
    const { fields } = this;
    write(field("resume-title"), fill(gettext("Resume %(name)s"), { name: this.header.name }));
    write(field("resume-problem"), "");
    const name = checkpoints.find((one) => one.score_name)?.score_name;
    this.score = this.page.metrics[name] ?? { label: name ?? gettext("Score"), unit: numbers.unitOf(name ?? "") };
    write(field("resume-score"), this.score.label);
    for (const part of ["resume-head", "resume-how"]) field(part).hidden = checkpoints.length === 0;
    field("resume-none").hidden = checkpoints.length > 0;
    this.before = { policy_ranks: hardware.policy_ranks, num_steps: numSteps };
    fields.policy_ranks.value = String(hardware.policy_ranks ?? 1);
    fields.num_steps.value = String(numSteps);
    // Knobs of other trainers say how many ranks there are, and with some of them the data how many steps.
    this.#offer(fields.policy_ranks, this.page.isNative);
    this.#offer(fields.num_steps, this.page.numSteps > 0);
    const whole = checkpoints.filter((one) => !one.problem); // a lost one can still be chosen: its node may be back
    const sound = whole.filter((one) => !one.is_after_divergence);
    const usable = sound.find((one) => one.is_visible) ?? sound[0] ?? whole[0];
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

  #offer(input, isOffered) {
    input.disabled = !isOffered;
    find(`label[for="${input.id}"]`).parentElement?.toggleAttribute("hidden", !isOffered);
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
        one.is_after_divergence ? el("span", { class: "tag" }, gettext("after divergence")) : null,
        one.is_pinned ? el("span", { class: "tag" }, gettext("pinned")) : null,
        one.problem ? el("span", { class: "faint small run-attempt-cause" }, one.problem) : null,
      ),
      el("td", { class: "num" }, numbers.metric(one.score, this.score.unit)),
      el("td", { class: "num" }, bytes(one.size)),
      el("td", { class: "num" }, grouped(one.attempt)),
      el("td", { class: "num", title: numbers.moment(at) }, numbers.clock(at)),
    );
  }

  #asked() {
    const { fields } = this;
    const [attempt, step] = fields.checkpoint.value.split("|").map(Number);
    /** @type {{ step: number | null, attempt?: number, hardware?: { policy_ranks: number }, num_steps?: number }} */
    const asked = fields.checkpoint.value ? { step, attempt } : { step: null };
    const ranks = Number(fields.policy_ranks.value);
    const steps = Number(fields.num_steps.value);
    if (!fields.policy_ranks.disabled && ranks !== this.before.policy_ranks) asked.hardware = { policy_ranks: ranks };
    if (!fields.num_steps.disabled && steps !== this.before.num_steps) asked.num_steps = steps;
    return asked;
  }

  async #submit(event) {
    event.preventDefault();
    const button = find('button[data-field="resume-submit"]');
    if (button.disabled) return;
    button.disabled = true;
    try {
      const { attempt } = await send("POST", `${this.page.api}/resume`, this.#asked());
      find('dialog[data-dialog="resume"]').close();
      toast(fill(gettext("Queued again as attempt %(number)s"), { number: attempt }));
    } catch (error) {
      write(field("resume-problem"), messageOf(error));
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
