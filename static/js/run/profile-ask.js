/** Asking for a capture: the button in the head (key p), and the dialog that says which profiler, steps, roles and ranks. */

import { el, fill, gettext, icon, write } from "../format.js";
import { onKeys } from "../keys.js";
import { toast } from "../toast.js";
import { send } from "../api.js";
import { costOf } from "./capture-cost.js";
import { roleName, stepsTitle, workersText } from "./captures.js";

const find = (selector) => document.querySelector(selector);
const field = (name) => find(`[data-field="${name}"]`);
const DEFAULT_STEPS = 2;
const TOOLS = ["torch", "nsys", "stacks", "memory", "msprof"]; // in the order of the dialog
const RECORD_SECONDS = 60; // of the Record button: it ends by itself if it is forgotten

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
    find('[data-action="record"]').addEventListener("click", () => this.#record());
    captures.addEventListener("change", () => {
      this.#show();
      this.#showRecord();
    });
  }

  /** Offer what the state allows; filled on the Profile tab, where it is the thing to do. */
  update(header) {
    this.header = header;
    if (!this.form) return;
    const isLast = this.#left() === 0; // the last step has begun
    this.buttons.hidden = !this.page.isNative || header.state !== "running" || isLast;
    write(field("profile-label"), nextText(this.#quickSteps()));
    this.#showRecord();
  }

  /** The capture by time that people can end now, if there is one. */
  #recording() {
    return this.captures.list.find(({ seconds, state }) => seconds > 0 && ["armed", "recording"].includes(state));
  }

  /** Record at once, or end what records. It is one button, so that the hand is where it has to be. */
  #showRecord() {
    const button = find('[data-action="record"]');
    button.hidden = !this.page.isNative || this.header?.state !== "running";
    const now = this.#recording();
    button.classList.toggle("is-recording", now?.state === "recording");
    button.title = now ? gettext("End the recording; its files are fetched while training goes on") : fill(gettext("Record from now on with the torch profiler, %(most)s s at most"), { most: RECORD_SECONDS });
    write(field("record-label"), now ? gettext("End recording") : gettext("Record"));
  }

  async #record() {
    const button = find('[data-action="record"]');
    if (button.disabled) return;
    button.disabled = true;
    try {
      const now = this.#recording();
      if (now) {
        await send("POST", `${this.page.api}/captures/${now.id}/end`);
        await this.captures.load();
      } else await this.#ask({ tool: "torch", seconds: RECORD_SECONDS, roles: [], ranks: [] });
    } catch (error) {
      toast(error.message, { isError: true });
    } finally {
      button.disabled = false;
    }
  }

  /** Say whether the Profile tab is open. */
  emphasize(isPrimary) {
    for (const button of this.buttons?.querySelectorAll("button") ?? []) button.classList.toggle("btn-primary", isPrimary);
  }

  /** Return a button that does the same, for places that are empty. */
  button() {
    if (!this.form || !this.page.isNative) return null; // other trainers record by their own knobs, from the start
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
    this.form.elements.seconds.value = "";
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
    find("[data-ask-roles]").replaceChildren(...roles.map((role) => box("roles", role, roleName(role))));
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
    const seconds = Number(elements.seconds.value || 0);
    return {
      tool: elements.tool.value, seconds, num_steps: Number(elements.num_steps.value), first_step: seconds ? 0 : Number(elements.first_step.value || 0),
      roles: some("roles", String), ranks: some("ranks", Number),
      isNobody: ["roles", "ranks"].some((name) => picked(name).length > 0 && picked(name).every((box) => !box.checked)),
    };
  }

  /** Let a role be chosen only for a tool that some worker of it has; what was ticked comes back with the other tool. */
  #limit(tool) {
    for (const box of this.form.querySelectorAll('[name="roles"]')) {
      const mine = this.captures.workers.filter(({ role }) => role === box.value);
      const isLacking = mine.length > 0 && mine.every(({ problems }) => problems[tool]);
      if (isLacking === box.disabled) continue;
      if (isLacking) box.dataset.was = String(box.checked);
      box.checked = isLacking ? false : box.dataset.was === "true";
      box.disabled = isLacking;
    }
  }

  /** Why the tool can record none of these workers, "" if it can. */
  #problem(tool, workers) {
    if (workers.length === 0 || workers.some(({ problems }) => problems[tool] === "")) return "";
    if (workers.some(({ problems }) => problems[tool])) return fill(gettext("%(tool)s can record none of these workers:"), { tool });
    return tool === "nsys" ? gettext("The workers have not told yet whether nsys can record them. Ask again in a moment.") : "";
  }

  /** Say on which workers and nodes a tool is missing, and why; on which it is ready. */
  #lacking(tool) {
    const { workers } = this.captures;
    const lacking = workers.filter(({ problems }) => problems[tool]);
    const able = workers.filter(({ problems }) => problems[tool] === "");
    const place = field("ask-lacking");
    place.hidden = lacking.length === 0;
    if (place.hidden) return;
    write(place.firstElementChild, able.length ? fill(gettext("%(tool)s records %(workers)s. It is not ready on:"), { tool, workers: workersText(able) }) : "");
    const reasons = new Map();
    for (const worker of lacking) reasons.set(worker.problems[tool], [...(reasons.get(worker.problems[tool]) ?? []), worker]);
    const items = [...reasons].map(([why, who]) => {
      const nodes = [...new Set(who.map(({ node }) => node))].filter((node) => node && !why.includes(node));
      const where = nodes.length ? ` (${fill(gettext("node %(name)s"), { name: nodes.join(", ") })})` : "";
      return el("li", {}, el("b", {}, `${workersText(who)}${where}`), `: ${why}`);
    });
    place.lastElementChild.replaceChildren(...items);
  }

  #show() {
    if (!this.form || !this.header) return;
    const { workers } = this.captures;
    const problems = Object.fromEntries(TOOLS.map((tool) => [tool, this.#problem(tool, workers)]));
    for (const tool of TOOLS) {
      this.form.querySelector(`[value="${tool}"]`).disabled = Boolean(problems[tool]);
      const able = workers.filter((one) => one.problems[tool] === "").length;
      const isPart = able > 0 && able < workers.length;
      write(find(`[data-ask-ready="${tool}"]`), isPart ? fill(gettext("on %(able)s of %(all)s workers"), { able, all: workers.length }) : "");
    }
    const other = TOOLS.find((tool) => !problems[tool]);
    if (problems[this.form.elements.tool.value] && other) this.form.elements.tool.value = other;
    const { value: tool } = this.form.elements.tool;
    this.#limit(tool);
    const { num_steps: count, first_step: first, seconds, roles, ranks, isNobody } = this.#asked();
    for (const name of ["num_steps", "first_step"]) this.form.elements[name].disabled = seconds > 0;
    const chosen = workers.filter(({ role, rank }) => (!roles.length || roles.includes(role)) && (!ranks.length || ranks.includes(rank)));
    const missing = problems.nsys ? "nsys" : tool; // what cannot be chosen says why, too
    const why = problems.nsys || this.#problem(tool, chosen);
    write(field("ask-tool-problem"), why);
    this.#lacking(missing);
    field("ask-install").hidden = missing !== "nsys" || !workers.some((one) => one.problems.nsys && !one.problems.nsys.includes("nsys_ready"));
    write(find('[data-text="install-nsys"]'), this.captures.install);
    const submit = field("ask-submit");
    const isEmpty = isNobody || (workers.length > 0 && chosen.length === 0); // there is vLLM, and rank 1, but no vLLM 1
    const isUnable = Boolean(this.#problem(tool, chosen));
    const able = chosen.filter(({ problems: found }) => !found[tool]).length;
    const { text, isTooLarge } = costOf({ ...this.captures, tool, workers: able, steps: count, seconds });
    write(field("ask-cost"), text);
    submit.disabled = isEmpty || isUnable || isTooLarge;
    const steps = { first, last: first + count - 1, count };
    if (isEmpty) write(submit, gettext("Choose a role and a rank"));
    else if (isUnable) write(submit, gettext("Choose other workers"));
    else if (isTooLarge) write(submit, gettext("Not enough room"));
    else if (!this.form.checkValidity()) return; // the browser says at the field what is wrong; nothing like "-1 steps" here
    else if (seconds) write(submit, fill(gettext("Record %(seconds)s s from now on"), { seconds }));
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
