/** Completions that the run kept: filter by step, kind and text, one by one or by group; new ones are announced, not pushed in. */

import { get } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { controls, field, find } from "../dom.js";
import { el, fill, gettext, grouped, messageOf, ngettext, write } from "../format.js";
import { mark, oneLine, reward as shown } from "./sample.js";
import { trajectory } from "./trajectory.js";

const COLUMNS = 7;

export class SampleTab {
  constructor({ page, store, query }) {
    this.page = page;
    this.store = store;
    this.query = query;
    this.form = find("form[data-sample-filter]");
    this.number = 1;
    this.numNew = 0;
    const { q, step } = controls(this.form);
    const groups = find("input[name=groups]", this.form);
    q.value = query.get("sq") ?? "";
    step.value = query.get("step") ?? "";
    groups.checked = query.get("groups") === "1";
    this.isEval = query.get("eval") ?? "";
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#again();
    });
    this.form.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.#again(), 250);
    });
    for (const button of this.form.querySelectorAll("[data-eval]")) {
      button.addEventListener("click", () => {
        this.isEval = button.dataset.eval;
        this.#again();
      });
    }
    for (const button of this.form.querySelectorAll("[data-step]")) {
      button.addEventListener("click", () => this.#move(Number(button.dataset.step)));
    }
    for (const button of document.querySelectorAll(".run-pages [data-page]")) {
      button.addEventListener("click", () => {
        this.number += Number(button.dataset.page);
        this.load();
      });
    }
    find('button[data-action="new-samples"]').addEventListener("click", () => this.#again());
    store.on("samples", (items) => this.#arrived([...items]));
  }

  show() {
    if (!this.isLoaded) this.load();
  }

  reset() {
    if (this.isLoaded) this.load();
  }

  update(header) {
    this.state = header.state;
  }

  #arrived(items) {
    const fits = items.filter((item) => this.isEval === "" || String(item.is_eval) === this.isEval);
    const count = fits.reduce((sum, item) => sum + item.count, 0);
    const total = find('[data-count="samples"]');
    this.total =
      (this.total ?? Number(total.textContent.replace(/\D/g, ""))) + items.reduce((sum, item) => sum + item.count, 0);
    write(total, grouped(this.total));
    if (!this.isLoaded || !count) return;
    if (this.isEmpty) {
      this.load();
      return;
    }
    this.numNew += count;
    const button = find('button[data-action="new-samples"]');
    button.hidden = false;
    write(button, fill(ngettext("Show %(n)s new", "Show %(n)s new", this.numNew), { n: grouped(this.numNew) }));
  }

  #again() {
    this.number = 1;
    this.load();
  }

  #move(by) {
    const { step } = controls(this.form);
    const steps = this.steps ?? []; // newest first
    const from = step.value === "" ? -1 : steps.findIndex((one) => one <= Number(step.value));
    const to = Math.min(Math.max(from - by, 0), steps.length - 1);
    if (to < 0) return;
    step.value = String(steps[to]);
    this.#again();
  }

  async load() {
    const { q, step } = controls(this.form);
    const groups = find("input[name=groups]", this.form);
    this.isLoaded = true;
    this.numNew = 0;
    find('button[data-action="new-samples"]').hidden = true;
    for (const button of this.form.querySelectorAll("[data-eval]"))
      button.setAttribute("aria-pressed", String(button.dataset.eval === this.isEval));
    const asked = { sq: q.value.trim(), step: step.value, eval: this.isEval, groups: groups.checked ? "1" : "" };
    for (const [name, value] of Object.entries(asked)) this.query.set(name, value);
    const params = new URLSearchParams({ page: String(this.number) });
    if (asked.sq) params.set("q", asked.sq);
    if (asked.step !== "") params.set("step", asked.step);
    if (asked.eval) params.set("is_eval", asked.eval);
    const turn = (this.turn ?? 0) + 1;
    this.turn = turn;
    try {
      const answer = await get(`${this.page.api}/samples?${params}`);
      if (turn === this.turn) this.#draw(answer, groups.checked, asked);
    } catch (error) {
      if (turn === this.turn) this.#empty(messageOf(error), true);
    }
  }

  #draw(answer, byGroup, asked) {
    const rows = answer.samples;
    this.isEmpty = rows.length === 0;
    this.steps = answer.steps;
    this.number = answer.page;
    const groups = new Map();
    for (const row of rows) {
      const key = groupKey(row);
      groups.set(key, [...(groups.get(key) ?? []), row]);
    }
    const lines = byGroup
      ? [...groups.values()].flatMap((group) => [this.#groupRow(group), ...group.map((row) => this.#row(row, group))])
      : rows.map((row) => this.#row(row, groups.get(groupKey(row))));
    find("[data-samples]").replaceChildren(...lines);
    const pages = answer.num_pages;
    write(
      field("sample-count"),
      fill(ngettext("%(n)s sample", "%(n)s samples", answer.total), { n: grouped(answer.total) }),
    );
    write(
      field("sample-page"),
      fill(gettext("page %(page)s of %(pages)s"), { page: grouped(this.number), pages: grouped(pages) }),
    );
    find('.run-pages button[data-page="-1"]').disabled = this.number <= 1;
    find('.run-pages button[data-page="1"]').disabled = this.number >= pages;
    const isFiltered = asked.sq || asked.step !== "" || asked.eval;
    const waits = this.state === "queued" || this.state === "starting";
    const text = isFiltered
      ? gettext("No sample matches. Widen the filter.")
      : this.page.sampleNote
        ? this.page.sampleNote
        : waits
          ? gettext("It has not started. The responses of its first step appear here.")
          : gettext("The run kept no samples.");
    this.#empty(this.isEmpty ? text : "", false);
  }

  #empty(text, isProblem) {
    const empty = field("samples-empty");
    empty.hidden = !text;
    empty.replaceChildren(el("p", {}, text));
    if (isProblem)
      empty.append(el("button", { class: "btn", type: "button", onclick: () => this.load() }, gettext("Try again")));
  }

  #groupRow(group) {
    const rewards = group.map((row) => row.reward).filter((reward) => reward !== null);
    const mean = rewards.reduce((sum, reward) => sum + reward, 0) / (rewards.length || 1);
    const isFlat = rewards.length > 1 && rewards.every((reward) => reward === rewards[0]);
    const text = fill(gettext("step %(step)s, group %(group)s: mean reward %(mean)s of %(count)s"), {
      step: group[0].step,
      group: group[0].group,
      mean: rewards.length ? numbers.number(mean) : "—",
      count: group.length,
    });
    return el(
      "tr",
      { class: "run-group-row" },
      el(
        "th",
        { colspan: COLUMNS, scope: "rowgroup", class: "cut", title: group[0].prompt },
        el("b", {}, text),
        isFlat ? el("span", { class: "tag" }, gettext("zero variance")) : null,
        " ",
        el("span", { class: "faint" }, oneLine(group[0].prompt)),
      ),
    );
  }

  #row(row, group) {
    const full = group.filter((one) => one.reward >= 1).length;
    const line = el(
      "tr",
      {
        tabindex: "0",
        "aria-expanded": "false",
        class: this.store.branches.isDead(row.attempt, row.step) ? "is-dead" : false,
      },
      el(
        "td",
        { class: "num" },
        grouped(row.step),
        row.is_eval ? el("span", { class: "faint", title: gettext("held-out") }, " ○") : null,
        this.#attempt(row),
      ),
      el(
        "td",
        { class: "num" },
        mark(row.reward),
        shown(row.reward),
        row.rewards?.failed ? el("span", { class: "tag" }, gettext("scoring failed")) : null,
      ),
      el("td", { class: "cut" }, oneLine(row.prompt)),
      el("td", { class: "cut" }, oneLine(row.completion)),
      el("td", { class: "num cut", title: row.expected }, row.expected || "—"),
      el("td", { class: "num" }, tokens(row)),
      el("td", { class: "num" }, `${full}/${group.length}`),
    );
    const toggle = () => this.#toggle(line, row, group);
    line.addEventListener("click", () => {
      if (!getSelection()?.toString()) toggle();
    });
    line.addEventListener("keydown", (event) => {
      if (event.key === "Enter") toggle();
    });
    return line;
  }

  /** Say whose sample it is, where there were several attempts. */
  #attempt({ attempt, step }) {
    if (this.store.branches.attempts.length < 2) return null;
    const isDead = this.store.branches.isDead(attempt, step);
    const title = isDead
      ? fill(gettext("dead branch, attempt %(attempt)s"), { attempt })
      : fill(gettext("attempt %(attempt)s"), { attempt });
    return el("span", { class: "tag run-attempt-tag", title }, `a${attempt}`);
  }

  #toggle(line, row, group) {
    if (line.getAttribute("aria-expanded") === "true") {
      line.nextElementSibling?.remove();
      line.setAttribute("aria-expanded", "false");
      return;
    }
    line.setAttribute("aria-expanded", "true");
    const pair = /** @type {[any, any] | null} */ (pairOf(group));
    /** @type {[string, any][]} */
    const parts = [
      [gettext("Prompt"), trajectory(row.prompt)],
      [gettext("Response"), pair ? sideBySide(pair) : trajectory(row.completion) || gettext("(empty)")],
    ];
    if (!pair) parts.push([gettext("Expected"), row.expected || "—"]);
    const named = Object.entries(row.rewards ?? {})
      .map(([name, value]) => `${name} ${numbers.number(value)}`)
      .join(" · ");
    parts.push([gettext("Reward"), numbers.number(row.reward) + (named ? ` (${named})` : "")]);
    parts.push([
      gettext("Where"),
      fill(gettext("step %(step)s, group %(group)s, sample %(index)s, %(tokens)s tokens"), {
        step: row.step,
        group: row.group,
        index: row.index,
        tokens: tokens(row),
      }),
    ]);
    const timeline = el(
      "a",
      { href: `${this.page.url}/timeline?at_step=${row.step}` },
      gettext("The step on the timeline"),
    );
    if (row.step > 0) parts.push([gettext("When"), timeline]);
    line.after(
      el(
        "tr",
        { class: "run-sample-full" },
        el(
          "td",
          { colspan: COLUMNS },
          el("dl", {}, ...parts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
        ),
      ),
    );
  }
}

/** The two responses of a pair, whose rewards are named by their sides; null of any other group. */
function pairOf(group) {
  const sides = ["chosen", "rejected"].map((side) => group.find((row) => side in (row.rewards ?? {})));
  return sides.every(Boolean) ? sides : null;
}

function sideBySide([chosen, rejected]) {
  const side = (name, row) =>
    el(
      "div",
      {},
      el("b", {}, fill(gettext("%(side)s, reward %(reward)s"), { side: name, reward: numbers.number(row.reward) })),
      el("p", {}, row.completion || gettext("(empty)")),
    );
  return el("div", { class: "run-pair" }, side(gettext("Chosen"), chosen), side(gettext("Rejected"), rejected));
}

/** How many tokens a response has; other trainers do not say. */
const tokens = (row) => (row.tokens || !row.completion ? grouped(row.tokens) : "—");

const groupKey = (row) => `${row.attempt}|${row.step}|${row.is_eval}|${row.group}`;
