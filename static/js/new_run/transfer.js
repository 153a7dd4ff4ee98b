// Specs in and out: a file to keep, a paste or a file to fill the form with, a recipe to start from.

import { around, find } from "../dom.js";
import { el, gettext } from "../format.js";
import { post, Unanswered } from "./ask.js";
import { wirePasteArea } from "./paste-area.js";

/** Offer `text` as a file. */
export function download(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Wire the import dialog; `onValues` gets the texts of the inputs once the server has accepted the spec. */
export function wireImport(form, { onValues }) {
  const dialog = find("dialog#import-dialog");
  const area = find("textarea", dialog);
  const errors = find(".import-errors", dialog);
  const say = (problems) =>
    errors.replaceChildren(
      ...problems.map((p) => el("li", {}, p.field ? el("code", {}, p.field) : null, ` ${p.message}`)),
    );

  async function fillForm() {
    const body = new URLSearchParams({ text: area.value });
    try {
      const { answer } = await post(form.dataset.import, form, { body });
      if (answer.problems) {
        say(answer.problems);
        area.focus();
        return;
      }
      say([]);
      dialog.close();
      onValues(answer.values, answer.report);
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      say([{ field: "", message: error.message }]);
    }
  }

  wirePasteArea({
    area,
    file: find("input[data-import-file]", dialog),
    button: find("[data-import-now]", dialog),
    onSend: fillForm,
  });
}

/** Wire the picker of recipes; `onValues` gets the texts of the inputs, base included. */
export function wireRecipes(form, { onValues }) {
  const dialog = find("dialog#recipe-dialog");
  const search = find("input[data-recipe-search]", dialog);
  const rows = [...dialog.querySelectorAll("[data-recipe-words]")];
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.dataset.recipeWords?.includes(word));
    find("[data-recipe-none]", dialog).hidden = rows.some((row) => !row.hidden);
  });
  dialog.addEventListener("click", async (event) => {
    const button = around(event, "[data-recipe]");
    if (!button) return;
    try {
      const response = await fetch(`${form.dataset.recipe}?id=${encodeURIComponent(button.dataset.recipe ?? "")}`, {
        headers: { Accept: "application/json" },
      });
      if (!response.ok) throw new Unanswered(String(response.status));
      const { values } = await response.json();
      dialog.close();
      onValues(values);
    } catch {
      document.dispatchEvent(
        new CustomEvent("pitwall:toast", {
          detail: {
            text: gettext("The console does not answer. Nothing is lost: try again in a moment."),
            isError: true,
          },
        }),
      );
    }
  });
}
