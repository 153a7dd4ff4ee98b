// The planner beside the form: verdict and bars come with the check's answer, advice after it, layouts when asked for.

import { around, find } from "../dom.js";
import { el, fill, gettext, ngettext } from "../format.js";
import { bodyOf, isAbort, post, Question, Unanswered } from "./ask.js";
import { wirePasteArea } from "./paste-area.js";

const HARDWARE = { accelerator: "plan.accelerator", nodes: "plan.nodes", devices_per_node: "plan.devices_per_node" };

/** Texts of the hardware to plan for, as the address names them: {} if it does not. */
export function hardwareOfAddress() {
  const asked = new URLSearchParams(location.search);
  const named = Object.entries(HARDWARE).filter(([key]) => asked.has(key));
  return Object.fromEntries(named.map(([key, name]) => [name, asked.get(key)]));
}

export class Plan {
  #form;
  #on;
  #open = new Set();
  #advice;
  #layouts;
  #since = 0;
  #isUnread = false;
  #isOverridden = false;
  #shown = { plan: "", bars: "", advice: "", strip: "" };

  constructor(form, { onUse, onProblems, onVerdict, onRead }) {
    this.#form = form;
    this.#on = { onUse, onProblems, onVerdict, onRead };
    this.state = "unknown";
    this.isWhatIf = false;
    this.numFixes = 0;
    const panel = find(".new-run-panel", form);
    panel.addEventListener("toggle", (event) => this.#keep(event.target), { capture: true });
    panel.addEventListener("click", (event) => {
      if (around(event, "[data-more]")) this.#showMore(around(event, "[data-more]"));
      if (around(event, "[data-plan-anyway]")) this.#override();
    });
    this.#advice = new Question(form.dataset.advice, form, {
      waitMs: 350,
      onAnswer: (answer) => this.#takeAdvice(answer),
      onFailure: () => this.#place("advice").classList.remove("is-stale"), // older advice stays; the verdict says what is wrong
    });
    this.#wireLayouts();
    this.#wireConfig();
    this.#wireStrip();
  }

  /** True if the run does not fit the hardware that it would be launched on, and nobody said to launch it all the same. */
  get refuses() {
    return this.state === "no" && !this.isWhatIf && !this.#isOverridden;
  }

  /** What the launch button says while the run does not fit. */
  get refusal() {
    if (!this.numFixes) return gettext("Does not fit");
    return fill(ngettext("Does not fit: see %(n)s change", "Does not fit: see %(n)s changes", this.numFixes), {
      n: this.numFixes,
    });
  }

  /** Show what the hardware inputs mean, and keep them in the address. */
  paint() {
    const chosen = this.#form.elements[HARDWARE.accelerator].value;
    find("[data-plan-size]", this.#form).hidden = !chosen;
    find("[data-plan-launches]", this.#form).hidden = !chosen;
    const address = new URL(location.href);
    for (const [key, name] of Object.entries(HARDWARE)) {
      if (chosen) address.searchParams.set(key, this.#form.elements[name].value);
      else address.searchParams.delete(key);
    }
    if (address.href !== location.href) history.replaceState(history.state, "", address);
  }

  /** A new answer is on its way: what is shown stays, and the caption says so. */
  begin() {
    this.#since = performance.now();
    this.#advice.cancel();
    this.#place("plan-busy").textContent = gettext("planning…");
  }

  /** No answer came, or the form is not whole: what is shown is of an earlier state. */
  dim() {
    this.#place("plan-busy").textContent = "";
    for (const name of ["plan", "bars", "advice", "strip"]) this.#place(name).classList.add("is-stale");
  }

  /** Take the check's answer. */
  take({ plan }) {
    this.state = plan.state;
    this.isWhatIf = plan.is_what_if;
    if (this.state !== "no") {
      this.numFixes = 0;
      this.#isOverridden = false;
    }
    this.#put("plan", plan.verdict);
    this.#put("bars", plan.bars);
    this.#put("strip", plan.strip);
    const hint = this.#form.querySelector("[data-plan-refused]");
    if (hint) hint.hidden = !this.refuses;
    this.#place("plan-busy").textContent =
      plan.milliseconds === null ? "" : fill(gettext("planned in %(n)s ms"), { n: plan.milliseconds });
    this.#place("plan-busy").dataset.shownMs = String(Math.round(performance.now() - this.#since));
    this.#on.onProblems(plan.problems);
    find("[data-open-layouts]", this.#form).hidden = !plan.has_layouts;
    this.#isUnread = plan.is_unread;
    if (!plan.has_layouts && !plan.is_unread) {
      this.#put("advice", "");
      this.#advice.cancel();
    } else {
      this.#place("advice").classList.add("is-stale");
      this.#advice.ask();
    }
  }

  /** Bring what would help into sight. */
  focus() {
    this.#fold(true);
    const title = document.getElementById("advice-title") ?? document.getElementById("plan-title");
    title?.scrollIntoView({ block: "nearest" });
    this.#focusOn(title);
  }

  #focusOn(node) {
    if (node && !node.matches("button, a, input, summary")) node.tabIndex = -1; // a title takes it only from us
    node?.focus({ preventScroll: true });
  }

  #place(name) {
    return this.#form.querySelector(`[data-${name}${name.startsWith("plan-") ? "" : "-place"}]`);
  }

  #put(name, raw) {
    const html = raw.trim();
    const where = this.#place(name);
    where.classList.remove("is-stale");
    if (this.#shown[name] === html) return;
    this.#shown[name] = html;
    const focused = where.querySelector(":focus")?.id;
    where.innerHTML = html; // escaped by the server's template
    if (focused) this.#focusOn(document.getElementById(focused));
    for (const node of where.querySelectorAll("details[data-keep]")) node.open = this.#open.has(node.dataset.keep);
  }

  #keep(node) {
    if (node.dataset?.keep === undefined || !node.isConnected) return;
    if (node.open) this.#open.add(node.dataset.keep);
    else this.#open.delete(node.dataset.keep);
  }

  #takeAdvice(answer) {
    if (this.#isUnread) this.#on.onRead(); // the model is known now, or why it cannot be
    if (answer.problems) {
      this.#put("advice", "");
      return;
    }
    this.#put("advice", answer.html); // the same stays, and the focus in it
    this.numFixes = answer.num_fixes;
    const link = find("[data-open-layouts]", this.#form);
    link.hidden = !answer.num_layouts;
    find("span", link).textContent = fill(gettext("All layouts (%(n)s)"), {
      n: answer.num_layouts.toLocaleString("en-US"),
    });
    this.#on.onVerdict();
  }

  #showMore(button) {
    const list = button.closest("section");
    const first = list.querySelector("[data-extra]");
    for (const row of list.querySelectorAll("[data-extra]")) row.hidden = false;
    button.closest("p").remove();
    first?.querySelector("button")?.focus();
  }

  #override() {
    this.#isOverridden = true;
    find("[data-plan-refused]", this.#form).hidden = true;
    this.#on.onVerdict();
    find("[data-launch]", this.#form).focus();
  }

  // ---- Narrow windows: a strip that opens ----

  #fold(isOpen) {
    find("[data-plan-fold]", this.#form).toggleAttribute("data-open", isOpen);
    find("[data-plan-strip]", this.#form).setAttribute("aria-expanded", String(isOpen));
  }

  #wireStrip() {
    const strip = find("[data-plan-strip]", this.#form);
    strip.addEventListener("click", () => this.#fold(strip.getAttribute("aria-expanded") !== "true"));
    find("[data-plan-fold]", this.#form).addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || strip.getAttribute("aria-expanded") !== "true" || !strip.checkVisibility()) return;
      this.#fold(false);
      strip.focus();
    });
  }

  // ---- All layouts ----

  #wireLayouts() {
    const dialog = find("dialog#layouts-dialog");
    const place = find("[data-layouts-place]", dialog);
    const goal = find("select[data-layouts-goal]", dialog);
    const search = find("input[data-layouts-search]", dialog);
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of place.querySelectorAll("[data-words]"))
        row.hidden = !words.every((word) => row.dataset.words?.includes(word));
      const none = place.querySelector("[data-none]");
      if (none) none.hidden = [...place.querySelectorAll("tr[data-words]")].some((row) => !row.hidden);
    };
    const say = (text) => place.replaceChildren(el("p", { class: "empty small" }, text));
    const ask = async () => {
      say(gettext("Checking every layout…"));
      const body = bodyOf(this.#form);
      body.set("goal", goal.value);
      this.#layouts?.abort();
      const abort = new AbortController();
      this.#layouts = abort;
      try {
        const { answer } = await post(this.#form.dataset.layouts, this.#form, { body, signal: abort.signal });
        if (answer.problems) say(answer.problems[0].message);
        else place.innerHTML = answer.html; // escaped by the server's template
        filter();
      } catch (error) {
        if (isAbort(error)) return;
        if (!(error instanceof Unanswered)) throw error;
        say(error.message);
      }
    };
    find("[data-open-layouts]", this.#form).addEventListener("click", () => {
      dialog.showModal();
      ask();
    });
    goal.addEventListener("change", ask);
    search.addEventListener("input", filter);
    dialog.addEventListener("click", (event) => {
      const button = around(event, "[data-fix]");
      if (!button) return;
      dialog.close();
      this.#on.onUse(JSON.parse(button.dataset.fix ?? ""));
    });
  }

  // ---- A model that is not known ----

  #wireConfig() {
    const dialog = find("dialog#config-dialog");
    const area = find("textarea", dialog);
    const errors = find(".import-errors", dialog);
    const say = (sentences) => errors.replaceChildren(...sentences.map((text) => el("li", {}, text)));
    const take = async () => {
      const body = bodyOf(this.#form);
      body.set("text", area.value);
      try {
        const { answer } = await post(this.#form.dataset.config, this.#form, { body });
        if (answer.problems) {
          say(answer.problems.map((p) => p.message));
          area.focus();
          return;
        }
        say([]);
        dialog.close();
        this.#on.onUse(answer.values, answer.says);
      } catch (error) {
        if (!(error instanceof Unanswered)) throw error;
        say([error.message]);
      }
    };
    wirePasteArea({
      area,
      file: find("input[data-config-file]", dialog),
      button: find("[data-config-now]", dialog),
      onSend: take,
    });
  }
}
