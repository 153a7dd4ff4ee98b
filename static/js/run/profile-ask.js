/** Asking for a capture: the button in the head (key p), and the dialog that says which profiler, steps, roles and ranks. */

import { el, fill, gettext, icon } from "../format.js";
import { onKeys } from "../keys.js";
import { toast } from "../toast.js";
import { send } from "../api.js";
import { stepsTitle } from "./captures.js";
import { write } from "./header.js";

const find = (selector) => document.querySelector(selector);
const field = (name) => find(`[data-field="${name}"]`);
const DEFAULT_STEPS = 2;

export class ProfileAsk extends EventTarget {
  constructor({ page, captures }) {
    super();
    Object.assign(this, { page, captures });
    this.form = find('[data-form="profile"]');
    this.buttons = find("[data-profile-buttons]");
    if (!this.form) return; // viewers look on
    find('[data-action="profile"]').addEventListener("click", () => this.quick());
    find('[data-action="profile-more"]').addEventListener("click", () => this.open());
    onKeys({ p: () => this.#press() });
    this.form.addEventListener("submit", (event) => this.#submit(event));
    this.form.addEventListener("input", () => {
      write(field("ask-problem"), "");
      this.#show();
    });
    captures.addEventListener("change", () => this.#show());
  }

  /** Offer what the state allows; filled on the Profile tab, where it is the thing to do. */
  update(header) {
    this.header = header;
    if (!this.form) return;
    this.buttons.hidden = header.state !== "running" || this.#left() === 0; // the last step has begun
    write(field("profile-label"), nextText(this.#quickSteps()));
  }

  /** Say whether the Profile tab is open. */
  emphasize(isPrimary) {
    for (const button of this.buttons?.querySelectorAll("button") ?? []) button.classList.toggle("btn-primary", isPrimary);
  }

  /** Return a button that does the same, for places that are empty. */
  button() {
    if (!this.form) return null;
    return el("button", { class: "btn", type: "button", onclick: () => this.quick() }, icon("target"), nextText(this.#quickSteps()));
  }

  #left() {
    const { step, num_steps: steps } = this.header;
    return steps ? Math.max(steps - step - 1, 0) : DEFAULT_STEPS;
  }

  #quickSteps() {
    return Math.max(1, Math.min(DEFAULT_STEPS, this.#left()));
  }

  #press() {
    if (this.buttons.hidden) return false;
    this.quick();
    return true;
  }

  /** Record the next steps with the torch profiler, on all workers. */
  async quick() {
    const button = find('[data-action="profile"]');
    if (button.disabled) return;
    button.disabled = true;
    try {
      await this.#ask({ tool: "torch", first_step: 0, num_steps: this.#quickSteps(), roles: [], ranks: [] });
    } catch (error) {
      toast(error.message, { isError: true });
    } finally {
      button.disabled = false;
    }
  }

  async open() {
    await this.captures.load();
    this.#choices();
    this.form.elements.num_steps.value = this.#quickSteps();
    this.form.elements.first_step.value = "";
    write(field("ask-problem"), "");
    this.#show();
    find('[data-dialog="profile"]').showModal();
  }

  #choices() {
    const { workers } = this.captures;
    const roles = [...new Set(workers.map(({ role }) => role))];
    const ranks = [...new Set(workers.map(({ rank }) => rank))].sort((a, b) => a - b);
    const box = (name, value, text) => el("label", { class: "check" }, el("input", { type: "checkbox", name, value, checked: true }), ` ${text}`);
    const signature = JSON.stringify([roles, ranks]);
    if (this.form.dataset.shown === signature) return;
    this.form.dataset.shown = signature;
    find("[data-ask-roles]").replaceChildren(...roles.map((role) => box("roles", role, role === "vllm" ? "vLLM" : role)));
    find("[data-ask-ranks]").replaceChildren(...ranks.map((rank) => box("ranks", String(rank), String(rank))));
  }

  #asked() {
    const { elements } = this.form;
    const picked = (name) => [...this.form.querySelectorAll(`[name="${name}"]`)];
    const some = (name, as) => {
      const all = picked(name);
      const chosen = all.filter((box) => box.checked);
      return chosen.length === all.length ? [] : chosen.map((box) => as(box.value));
    };
    return {
      tool: elements.tool.value, num_steps: Number(elements.num_steps.value), first_step: Number(elements.first_step.value || 0),
      roles: some("roles", String), ranks: some("ranks", Number),
      isNobody: ["roles", "ranks"].some((name) => picked(name).length > 0 && picked(name).every((box) => !box.checked)),
    };
  }

  /** Why the tool can record none of the chosen workers, "" if it can. */
  #problem({ tool, roles, ranks }) {
    const chosen = this.captures.workers.filter(({ role, rank }) => (!roles.length || roles.includes(role)) && (!ranks.length || ranks.includes(rank)));
    const isAble = chosen.some(({ problems }) => problems[tool] === "");
    const lacking = chosen.find(({ problems }) => problems[tool]);
    if (lacking && !isAble) return `${lacking.role === "vllm" ? "vLLM" : lacking.role} ${lacking.rank}: ${lacking.problems[tool]}`;
    if (tool === "nsys" && chosen.some(({ problems }) => !("nsys" in problems))) return gettext("The workers have not told yet whether nsys can record them. Ask again in a moment.");
    return "";
  }

  #show() {
    if (!this.form || !this.header) return;
    const asked = this.#asked();
    const noNsys = this.#problem({ ...asked, tool: "nsys" });
    this.form.querySelector('[value="nsys"]').disabled = Boolean(noNsys);
    if (noNsys && asked.tool === "nsys") this.form.elements.tool.value = "torch";
    write(field("ask-tool-problem"), noNsys ? fill(gettext("nsys is not ready. %(why)s"), { why: noNsys }) : "");
    const isMissing = this.captures.workers.some(({ problems }) => problems.nsys && !problems.nsys.includes("nsys_ready"));
    field("ask-install").hidden = !isMissing;
    write(find('[data-text="install-nsys"]'), this.captures.install);
    const { num_steps: count, first_step: first, isNobody } = this.#asked();
    const submit = field("ask-submit");
    submit.disabled = isNobody;
    const steps = { first, last: first + count - 1, count };
    if (isNobody) write(submit, gettext("Choose a role and a rank"));
    else if (!this.form.checkValidity()) return; // the browser says at the field what is wrong; nothing like "-1 steps" here
    else if (!first) write(submit, nextText(count));
    else write(submit, count > 1 ? fill(gettext("Profile steps %(first)s–%(last)s"), steps) : fill(gettext("Profile step %(first)s"), steps));
  }

  async #submit(event) {
    event.preventDefault();
    const { isNobody, ...asked } = this.#asked();
    if (isNobody) return;
    const submit = field("ask-submit");
    submit.disabled = true;
    try {
      await this.#ask(asked);
      find('[data-dialog="profile"]').close();
    } catch (error) {
      write(field("ask-problem"), error.message);
    } finally {
      submit.disabled = false;
    }
  }

  async #ask(asked) {
    const capture = await send("POST", `${this.page.api}/captures`, asked);
    await this.captures.load();
    this.dispatchEvent(new CustomEvent("asked", { detail: capture.id }));
    const text = fill(gettext("%(steps)s will be recorded with %(tool)s"), { steps: stepsTitle(capture), tool: capture.tool });
    const isThere = !find('[data-panel="profile"]').hidden;
    toast(text, isThere ? {} : { link: { url: `${this.page.url}/profile?capture=${capture.id}`, text: gettext("Watch it") } });
  }
}

function nextText(count) {
  return count === 1 ? gettext("Profile next step") : fill(gettext("Profile next %(count)s steps"), { count });
}
