/** The dialog that asks for a capture: what is to be seen, of which steps and workers. The console selects the tool, and says why; who knows better names one. */

import { get } from "../api.js";
import { controls, field, find } from "../dom.js";
import { el, fill, gettext, messageOf, write } from "../format.js";
import { costOf } from "./capture-cost.js";
import { nextText, roleName, workersText } from "./captures.js";

export class ProfileDialog {
  /** `ask` sends a request; it throws the refusal. */
  constructor({ page, captures, ask }) {
    this.page = page;
    this.captures = captures;
    this.ask = ask;
    this.form = find('form[data-form="profile"]');
    this.form.addEventListener("submit", (event) => this.#submit(event));
    this.form.addEventListener("input", () => {
      write(field("ask-problem"), "");
      this.#change();
    });
    captures.addEventListener("change", () => {
      this.#workerBoxes(); // the dialog may have been opened with what an earlier answer told
      if (!this.isOpen) return;
      this.key = null; // workers may have told what they have
      this.#change();
    });
  }

  get isOpen() {
    return find('dialog[data-dialog="profile"]').open;
  }

  async open(steps) {
    const fields = controls(this.form);
    await this.captures.load();
    this.#workerBoxes();
    fields.num_steps.value = steps;
    fields.first_step.value = "";
    fields.seconds.value = "";
    write(field("ask-problem"), "");
    for (const name of ["ask-install", "ask-tools"]) find(`details[data-field="${name}"]`).open = false;
    const picked = document.querySelector('[data-ask-tools] input[value=""]');
    if (picked) picked.checked = true; // who named a tool for one capture did not name it for all
    this.key = null;
    await this.#choose();
    find('dialog[data-dialog="profile"]').showModal();
    find('[name="what"]:checked', this.form).focus();
  }

  #workerBoxes() {
    const { workers } = this.captures;
    const roles = [...new Set(workers.map(({ role }) => role))];
    const ranks = [...new Set(workers.map(({ rank }) => rank))].sort((a, b) => a - b);
    const box = (name, value, text) =>
      el("label", { class: "check" }, el("input", { type: "checkbox", name, value, checked: true }), ` ${text}`);
    const signature = JSON.stringify([roles, ranks]);
    if (this.form.dataset.shown === signature) return;
    this.form.dataset.shown = signature;
    find("[data-ask-roles]").replaceChildren(...roles.map((role) => box("roles", role, roleName(role))));
    find("[data-ask-ranks]").replaceChildren(...ranks.map((rank) => box("ranks", String(rank), String(rank))));
  }

  /** What the form says; roles and ranks are [] for all. */
  #asked() {
    const fields = controls(this.form);
    const boxes = (name) => [...this.form.querySelectorAll(`input[name="${name}"]`)];
    const some = (name, as) => {
      const all = boxes(name);
      const chosen = all.filter((box) => box.checked);
      return chosen.length === all.length ? [] : chosen.map((box) => as(box.value));
    };
    const seconds = Number(fields.seconds.value || 0);
    const [roles, ranks] = [some("roles", String), some("ranks", Number)];
    const isNobody = ["roles", "ranks"].some(
      (name) => boxes(name).length > 0 && boxes(name).every((box) => !box.checked),
    );
    const { workers } = this.captures;
    const chosen = isNobody
      ? []
      : workers.filter(
          ({ role, rank }) => (!roles.length || roles.includes(role)) && (!ranks.length || ranks.includes(rank)),
        );
    return {
      what: fields.what.value,
      tool: this.form.querySelector('input[name="tool"]:checked')?.value ?? "",
      seconds,
      roles,
      ranks,
      chosen,
      num_steps: Number(fields.num_steps.value),
      first_step: seconds ? 0 : Number(fields.first_step.value || 0),
      isEmpty: isNobody || (workers.length > 0 && chosen.length === 0), // there is vLLM, and rank 1, but no vLLM 1
    };
  }

  #change() {
    this.#show();
    this.#choose();
  }

  /** Ask the console which tools it would select on the chosen workers; the last call wins, and until then the old answer stands. */
  async #choose() {
    const { roles, ranks, isEmpty } = this.#asked();
    const key = new URLSearchParams([
      ...roles.map((role) => ["roles", role]),
      ...ranks.map((rank) => ["ranks", rank]),
    ]).toString();
    if (isEmpty || key === this.key) return;
    this.key = key;
    try {
      const found = await get(`${this.page.api}/captures/choices?${key}`);
      if (key !== this.key) return;
      this.choices = found;
      this.#show();
    } catch (error) {
      this.key = null;
      write(field("ask-problem"), messageOf(error));
      if (!this.choices) this.#submitText(this.#asked(), { isUnable: true, isTooLarge: false, isByTime: false });
    }
  }

  #show() {
    if (!this.choices) return;
    const choice = this.choices.choices.find(({ what }) => what === controls(this.form).what.value);
    this.#tools(choice);
    const asked = this.#asked();
    const tool = choice.tools.find(({ name }) => name === (asked.tool || choice.tool)) ?? null;
    const problem = asked.tool ? tool.problem : choice.problem;
    const why = asked.tool
      ? fill(gettext("%(tool)s, because you chose it: %(about)s."), { tool: asked.tool, about: tool.about })
      : choice.why;
    if (tool && !problem) sayTool(tool.name, why);
    else write(field("ask-why"), "");
    write(field("ask-tool-problem"), problem);
    write(field("ask-shows"), tool && !problem ? shownText(tool) : "");
    this.#lacking(choice, tool, asked.chosen);
    for (const name of ["num_steps", "first_step"]) controls(this.form)[name].disabled = asked.seconds > 0;
    const { text, isTooLarge } = costOf({
      ...this.captures,
      tool: tool?.name ?? "",
      workers: tool?.num_able ?? 0,
      steps: asked.num_steps,
      seconds: asked.seconds,
    });
    write(field("ask-cost"), tool && !problem ? text : "");
    this.#submitText(asked, {
      isUnable: Boolean(problem),
      isTooLarge,
      isByTime: Boolean(asked.seconds && tool?.by_steps),
    });
  }

  /** Offer the tools that show it: the first comes first where it is ready. */
  #tools({ what, tools }) {
    const signature = JSON.stringify([what, tools]);
    const place = find("[data-ask-tools]");
    if (place.dataset.shown === signature) return;
    place.dataset.shown = signature;
    const named = this.form.querySelector('input[name="tool"]:checked')?.value ?? "";
    const focused = place.querySelector("input:focus")?.value;
    const { num_workers: total } = this.choices;
    const row = (value, text, about, isReady, note) =>
      el(
        "label",
        { class: "check" },
        el("input", { type: "radio", name: "tool", value, checked: value === named, disabled: !isReady }),
        ` ${text} `,
        el("span", { class: "faint small" }, about),
        note ? el("span", { class: "small num" }, ` ${note}`) : null,
        isReady ? null : el("span", { class: "small", "data-why": value }),
      );
    place.replaceChildren(
      row("", gettext("Picked"), gettext("by what it shows, the device and what workers have"), true, ""),
      ...tools.map((one) =>
        row(
          one.name,
          one.name,
          one.about,
          !one.problem,
          one.num_able < total
            ? fill(gettext("on %(able)s of %(all)s workers"), { able: one.num_able, all: total })
            : "",
        ),
      ),
    );
    const checked = this.form.querySelector('input[name="tool"]:checked');
    if (!checked || checked.disabled) find('input[value=""]', place).checked = true;
    if (focused !== undefined) (place.querySelector(`[value="${focused}"]:enabled`) ?? find(":checked", place)).focus();
  }

  /** Say on which workers and nodes the tool is missing, or one that would have come before it, and why; beside every other tool that nobody has, why. */
  #lacking({ tools }, tool, chosen) {
    const missing = tools
      .slice(0, tool ? tools.indexOf(tool) + 1 : tools.length)
      .find(({ name }) => chosen.some(({ problems }) => problems[name]));
    const lacking = missing ? chosen.filter(({ problems }) => problems[missing.name]) : [];
    const place = field("ask-lacking");
    place.hidden = lacking.length === 0;
    field("ask-install").hidden =
      missing?.name !== "nsys" || !lacking.some(({ problems }) => !problems.nsys.includes("nsys_ready"));
    write(find('[data-text="install-nsys"]'), this.captures.install);
    for (const one of document.querySelectorAll("[data-why]")) {
      const { why = "" } = one.dataset;
      const said = why === missing?.name ? [] : chosen.map(({ problems }) => problems[why]);
      write(one, [...new Set(said.filter(Boolean))].join(" "));
    }
    if (place.hidden) return;
    write(place.firstElementChild, fill(gettext("%(tool)s is not ready on:"), { tool: missing.name }));
    const reasons = new Map();
    for (const worker of lacking)
      reasons.set(worker.problems[missing.name], [...(reasons.get(worker.problems[missing.name]) ?? []), worker]);
    const items = [...reasons].map(([why, who]) => {
      const nodes = [...new Set(who.map(({ node }) => node))].filter((node) => node && !why.includes(node));
      const where = nodes.length ? ` (${fill(gettext("node %(name)s"), { name: nodes.join(", ") })})` : "";
      return el("li", {}, el("b", {}, `${workersText(who)}${where}`), `: ${why}`);
    });
    find("ul", place).replaceChildren(...items);
  }

  #submitText({ num_steps: count, first_step: first, seconds, isEmpty }, { isUnable, isTooLarge, isByTime }) {
    const submit = find('button[data-field="ask-submit"]');
    submit.disabled = isEmpty || isUnable || isTooLarge || isByTime;
    const steps = { first, last: first + count - 1, count };
    if (isEmpty) write(submit, gettext("Choose a role and a rank"));
    else if (isUnable) write(submit, gettext("No tool for it"));
    else if (isByTime) write(submit, gettext("Only whole steps: leave the seconds out"));
    else if (isTooLarge) write(submit, gettext("Not enough free space"));
    else if (!this.form.checkValidity())
      return; // the browser says at the field what is wrong; nothing like "-1 steps" here
    else if (seconds) write(submit, fill(gettext("Record %(seconds)s s from now on"), { seconds }));
    else if (!first) write(submit, nextText(count));
    else
      write(
        submit,
        count > 1
          ? fill(gettext("Profile steps %(first)s–%(last)s"), steps)
          : fill(gettext("Profile step %(first)s"), steps),
      );
  }

  async #submit(event) {
    event.preventDefault();
    const { isEmpty, chosen, ...asked } = this.#asked();
    if (isEmpty) return;
    const submit = find('button[data-field="ask-submit"]');
    submit.disabled = true;
    try {
      await this.ask(asked);
      find('dialog[data-dialog="profile"]').close();
    } catch (error) {
      write(field("ask-problem"), messageOf(error));
    } finally {
      submit.disabled = false;
    }
  }
}

/** Say why this tool; its name, which the sentence begins with in most languages, stands out. */
function sayTool(name, why) {
  const place = field("ask-why");
  if (place.textContent === why) return;
  const at = why.indexOf(name);
  place.replaceChildren(...(at < 0 ? [why] : [why.slice(0, at), el("b", {}, name), why.slice(at + name.length)]));
}

/** Say what else a tool's files show, and what not. */
function shownText({ also, without }) {
  const words = (whats) =>
    whats.map((what) => find(`[name="what"][value="${what}"] + span > b`).textContent.toLowerCase()).join(", ");
  const shown = also.length ? fill(gettext("It shows too: %(what)s."), { what: words(also) }) : "";
  const hidden = without.length ? fill(gettext("Not in it: %(what)s."), { what: words(without) }) : "";
  return [shown, hidden].filter(Boolean).join(" ");
}
