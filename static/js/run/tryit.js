/** Ask the trained model: a prompt becomes a short job on the cluster; the answer comes when resources are free. */

import { get, send } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { find } from "../dom.js";
import { el, fill, gettext, messageOf, renew, write } from "../format.js";

const POLL_MS = 1000;

export class TryIt {
  constructor({ page }) {
    this.page = page;
    this.models = [];
    this.forms = [...document.querySelectorAll("form[data-tryit]")];
    for (const form of this.forms) form.addEventListener("submit", (event) => this.#ask(event));
  }

  /** Offer `models`, artifacts that are ready, the usual one first; one has to be chosen where there are several. */
  offer(models) {
    this.models = models;
    const isOffered = models.length > 0 && this.page.canEdit && this.page.hasAnswers;
    for (const form of this.forms) {
      form.hidden = !isOffered;
      this.#choices(form);
    }
    find("[data-tryit-card]").hidden = !isOffered;
    document.body.classList.toggle("has-model", isOffered);
    if (models.length && !this.isLoaded) {
      this.isLoaded = true;
      this.#history();
    }
  }

  #choices(form) {
    const select = form.elements.model;
    const chosen = select.value;
    renew(
      select,
      this.models.map(({ id, name, attempt }) =>
        el("option", { value: String(id) }, this.hasAttempts ? `${name}, a${attempt}` : name),
      ),
    );
    if (this.models.some(({ id }) => String(id) === chosen)) select.value = chosen;
    select.hidden = this.models.length < 2;
    write(part(form, "model"), this.models.length === 1 ? this.models[0].name : "");
  }

  get hasAttempts() {
    return new Set(this.models.map(({ attempt }) => attempt)).size > 1;
  }

  async #ask(event) {
    event.preventDefault();
    const form = event.currentTarget;
    const prompt = form.elements.prompt.value.trim();
    if (!prompt || form.dataset.busy) return;
    form.dataset.busy = "1";
    find("button", form).disabled = true;
    write(part(form, "state"), gettext("Asking…"));
    write(part(form, "answer"), "");
    part(form, "answer").classList.remove("bad");
    try {
      const asked = await send("POST", `${this.page.api}/answers`, {
        prompt,
        artifact_id: Number(form.elements.model.value),
      });
      await this.#wait(form, asked);
      this.#history();
    } catch (error) {
      write(part(form, "state"), "");
      this.#problem(form, messageOf(error));
    } finally {
      delete form.dataset.busy;
      find("button", form).disabled = false;
    }
  }

  async #wait(form, answer) {
    const since = Date.now();
    while (["queued", "starting"].includes(answer.state)) {
      const waited = numbers.duration(Math.round((Date.now() - since) / 1000));
      const text =
        answer.state === "queued"
          ? answer.wait_reason || gettext("waiting for 1 free CPU")
          : gettext("loading the model");
      write(part(form, "state"), `${text}, ${waited}`);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      answer = await get(`${this.page.api}/answers/${answer.id}`);
    }
    if (answer.state === "failed") {
      write(part(form, "state"), "");
      this.#problem(form, answer.problem || gettext("The model could not respond. Try again."));
      return;
    }
    write(part(form, "answer"), answer.text || gettext("The model ended its response at once."));
    write(part(form, "state"), fill(gettext("answered in %(time)s"), { time: took(answer) }));
  }

  #problem(form, text) {
    part(form, "answer").classList.add("bad");
    write(part(form, "answer"), text);
  }

  /** Return whose answer it is, where there are several models. */
  #nameOf({ artifact_id: id }) {
    const model = this.models.length > 1 ? this.models.find((one) => one.id === id) : null;
    return model ? `, ${model.name}` : "";
  }

  async #history() {
    const place = find("[data-answers]");
    try {
      const found = await get(`${this.page.api}/answers`);
      const answers = found.answers ?? found;
      place.replaceChildren(
        ...answers
          .slice(0, 8)
          .map((answer) =>
            el(
              "article",
              { class: "run-answer-old" },
              el("p", { class: "quiet" }, answer.prompt),
              el(
                "p",
                { class: answer.state === "failed" ? "bad" : "" },
                answer.state === "failed" ? answer.problem : answer.text || "…",
              ),
              el(
                "p",
                { class: "faint small num" },
                answer.state === "finished" ? took(answer) : answer.state,
                this.#nameOf(answer),
              ),
            ),
          ),
      );
    } catch {
      place.replaceChildren();
    }
  }
}

const part = (form, name) => form.querySelector(`[data-part="${name}"]`);

function took({ created_at: from, ended_at: to }) {
  return from && to ? numbers.duration((Date.parse(to) - Date.parse(from)) / 1000) : "—";
}
