/** Responses that the run kept: filtered, charted, opened and reviewed; new ones are announced, not pushed in. */

import { get } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { around, controls, field, find } from "../dom.js";
import { el, fill, gettext, grouped, icon, messageOf, ngettext, write } from "../format.js";
import { oneLine } from "./sample.js";
import { SampleCharts } from "./sample-charts.js";
import { sampleDetail, toggleVerdict } from "./sample-detail.js";
import { SampleFilter } from "./sample-filter.js";
import { COLUMNS, groupRow, reviewMarks, sampleRow } from "./sample-rows.js";

const TYPING_MS = 250;

export class SampleTab {
  constructor({ page, store, query }) {
    this.page = page;
    this.store = store;
    this.filter = new SampleFilter(query);
    this.charts = new SampleCharts({
      onRange: (range) => {
        this.filter.reward = range;
        this.#again();
      },
      onSample: (id) => this.#group(id),
    });
    this.body = find("[data-samples]");
    this.number = 1;
    this.numNew = 0;
    /** @type {Map<string, any>} whole samples of opened rows, by id */
    this.opened = new Map();
    this.context = {
      url: page.url,
      api: page.api,
      canEdit: page.canEdit,
      onPrompt: (/** @type {string} */ key) => {
        this.filter.choosePrompt(key);
        this.#again();
      },
      onGroup: (/** @type {number} */ id) => this.#group(id),
      onReview: (/** @type {any} */ sample, /** @type {boolean} */ isVerdict) => this.#reviewed(sample, isVerdict),
    };
    this.#listen();
    store.on("samples", (items) => this.#arrived([...items]));
  }

  #listen() {
    const { form } = this.filter;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#again();
    });
    form.addEventListener("input", (event) => {
      clearTimeout(this.typing);
      const isTyped = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
      this.typing = setTimeout(() => this.#again(), isTyped ? TYPING_MS : 0);
    });
    for (const button of form.querySelectorAll("[data-eval]")) {
      button.addEventListener("click", () => {
        this.filter.isEval = button.dataset.eval ?? "";
        this.#again();
      });
    }
    for (const button of form.querySelectorAll("[data-step]"))
      button.addEventListener("click", () => this.#move(Number(button.dataset.step)));
    for (const button of document.querySelectorAll(".run-pages [data-page]")) {
      button.addEventListener("click", () => {
        this.number += Number(button.dataset.page);
        this.load();
      });
    }
    find('button[data-action="new-samples"]').addEventListener("click", () => this.#again());
    document.querySelector('button[data-action="review-samples"]')?.addEventListener("click", () => {
      controls(form).review.value = "none";
      this.#again(true);
    });
    this.body.addEventListener("click", (event) => {
      const line = around(event, "tr[data-sample]");
      if (line && !getSelection()?.toString()) this.#toggle(line);
    });
    this.body.addEventListener("keydown", (event) => this.#key(event));
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
    const { isEval } = this.filter;
    const fits = items.filter((item) => isEval === "" || String(item.is_eval) === isEval);
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

  #again(opens = /** @type {boolean | string} */ (false)) {
    this.number = 1;
    this.load(opens);
  }

  #move(by) {
    const { step } = controls(this.filter.form);
    const steps = this.steps ?? []; // newest first
    const from = step.value === "" ? -1 : steps.findIndex((one) => one <= Number(step.value));
    const to = Math.min(Math.max(from - by, 0), steps.length - 1);
    if (to < 0) return;
    step.value = String(steps[to]);
    this.#again();
  }

  #group(id) {
    this.filter.chooseGroup(id);
    this.#again(String(id));
  }

  /** Read the list anew, then its charts. `opens`: the row of this id, or true for the first one. */
  async load(opens = /** @type {boolean | string} */ (false)) {
    this.isLoaded = true;
    this.numNew = 0;
    find('button[data-action="new-samples"]').hidden = true;
    this.filter.write();
    const { params, reward, prompt } = this.filter;
    const turn = (this.turn ?? 0) + 1;
    this.turn = turn;
    try {
      const answer = await get(`${this.page.api}/samples?${params}&page=${this.number}`);
      if (turn !== this.turn) return;
      this.#draw(answer);
      const id = opens === true ? String(answer.samples[0]?.id ?? "") : opens;
      const line = id && this.body.querySelector(`tr[data-sample="${id}"]`);
      if (line) this.#open(line);
      const spread = await get(`${this.page.api}/samples/distribution?${params}`);
      if (turn === this.turn) this.charts.draw(spread, reward, prompt !== "");
    } catch (error) {
      if (turn === this.turn) this.#empty(messageOf(error), true);
    }
  }

  #draw(answer) {
    const rows = answer.samples;
    this.isEmpty = rows.length === 0;
    this.steps = answer.steps;
    this.number = answer.page;
    this.opened.clear();
    let group = "";
    const lines = rows.flatMap((row) => {
      const line = sampleRow(row, this.store.branches);
      const isFirst = groupKey(row) !== group;
      group = groupKey(row);
      return this.filter.byGroup && isFirst ? [groupRow(row), line] : [line];
    });
    this.body.replaceChildren(...lines);
    this.#chips(rows[0]);
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
    const waits = this.state === "queued" || this.state === "starting";
    const text = this.filter.isOn
      ? gettext("No sample matches. Widen the filter.")
      : this.page.sampleNote
        ? this.page.sampleNote
        : waits
          ? gettext("It has not started. The responses of its first step appear here.")
          : gettext("The run kept no samples.");
    this.#empty(this.isEmpty ? text : "", false);
  }

  /** Say what the charts and the rows have chosen; each can be taken away. */
  #chips(first) {
    const { filter } = this;
    const chip = (label, clear) =>
      el(
        "button",
        {
          class: "chip",
          type: "button",
          title: gettext("Take this filter away"),
          onclick: () => {
            clear();
            this.#again();
          },
        },
        el("span", { class: "cut" }, label),
        icon("x"),
      );
    const chips = [];
    const { from, below } = filter.reward;
    if (from !== null || below !== null) {
      const range = [from ?? "…", below ?? "…"].map((end) => (typeof end === "number" ? numbers.number(end) : end));
      const label = fill(gettext("reward %(from)s to %(to)s"), { from: range[0], to: range[1] });
      chips.push(chip(label, () => (filter.reward = { from: null, below: null })));
    }
    if (filter.prompt) {
      const prompt = first ? oneLine(first.prompt) : filter.prompt;
      chips.push(chip(fill(gettext("prompt: %(prompt)s"), { prompt }), () => (filter.prompt = "")));
    }
    if (filter.groupOf) {
      const label = first
        ? fill(gettext("group %(group)s of step %(step)s"), { group: first.group, step: grouped(first.step) })
        : gettext("one group");
      chips.push(chip(label, () => (filter.groupOf = "")));
    }
    const place = find("[data-sample-chips]");
    place.replaceChildren(...chips);
    place.hidden = chips.length === 0;
  }

  #empty(text, isProblem) {
    const empty = field("samples-empty");
    empty.hidden = !text;
    empty.replaceChildren(el("p", {}, text));
    if (isProblem)
      empty.append(el("button", { class: "btn", type: "button", onclick: () => this.load() }, gettext("Try again")));
    else if (text && this.filter.isOn)
      empty.append(
        el(
          "button",
          {
            class: "btn",
            type: "button",
            onclick: () => {
              this.filter.clear();
              this.#again();
            },
          },
          gettext("Show all samples"),
        ),
      );
  }

  #key(event) {
    if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
    const line = this.#lineOf(event);
    if (!line) return;
    const isRow = event.target === line;
    const sample = this.opened.get(line.dataset.sample ?? "");
    const verdict = event.key === "u" ? "up" : event.key === "d" ? "down" : null;
    if (event.key === "Enter" && isRow) this.#toggle(line);
    else if (event.key === "ArrowDown") this.#step(line, 1)?.focus();
    else if (event.key === "ArrowUp") this.#step(line, -1)?.focus();
    else if (verdict && this.page.canEdit && sample) toggleVerdict(sample, verdict, this.context);
    else return;
    event.preventDefault();
  }

  /** Return the row that an event belongs to: its own, or the one that is opened above it. */
  #lineOf(event) {
    const line = around(event, "tr");
    const isDetail = line?.classList.contains("run-sample-full");
    const own = isDetail ? line?.previousElementSibling : line;
    return own instanceof HTMLElement && own.dataset.sample ? own : null;
  }

  /** Return the row `by` rows below, or above. */
  #step(line, by) {
    const lines = [...this.body.querySelectorAll("tr[data-sample]")];
    return lines[lines.indexOf(line) + by];
  }

  #toggle(line) {
    if (line.getAttribute("aria-expanded") === "true") this.#close(line);
    else this.#open(line);
  }

  #close(line) {
    if (line.nextElementSibling?.classList.contains("run-sample-full")) line.nextElementSibling.remove();
    line.setAttribute("aria-expanded", "false");
    this.opened.delete(line.dataset.sample);
  }

  async #open(line) {
    line.setAttribute("aria-expanded", "true");
    line.focus();
    const cell = el("td", { colspan: COLUMNS }, el("p", { class: "faint" }, "…"));
    line.after(el("tr", { class: "run-sample-full" }, cell));
    try {
      const sample = await get(`${this.page.api}/samples/${line.dataset.sample}`);
      this.opened.set(line.dataset.sample, sample);
      cell.replaceChildren(sampleDetail(sample, this.context));
    } catch (error) {
      cell.replaceChildren(el("p", { class: "bad" }, messageOf(error)));
    }
  }

  /** Show what was said; of the samples to review, go on with the next one. */
  #reviewed(sample, isVerdict) {
    const line = this.body.querySelector(`tr[data-sample="${sample.id}"]`);
    if (!line) return;
    this.opened.set(String(sample.id), sample);
    line.querySelector("[data-sample-marks]")?.replaceWith(reviewMarks(sample));
    const isQueue = isVerdict && controls(this.filter.form).review.value === "none";
    if (isQueue && sample.reviews.some((one) => one.is_mine && one.verdict)) {
      const next = this.#step(line, 1);
      this.#close(line);
      if (next) this.#open(next);
      else this.#again(true);
      return;
    }
    line.nextElementSibling?.firstElementChild?.replaceChildren(sampleDetail(sample, this.context));
    line.focus();
  }
}

const groupKey = (row) => `${row.attempt}|${row.step}|${row.is_eval}|${row.group}`;
