/** Adding runs: the dialog that searches, and the list of proposals where there is nothing to compare yet. */

import { find } from "../dom.js";
import { el, gettext, icon, stateBadge } from "../format.js";

/** Offer runs by name or id; `ids` gives those that are here, `add(id)` takes one. */
export function offerRuns({ ids, add }) {
  const dialog = find("dialog#add-run");
  const input = find("input[data-add-search]", dialog);
  const list = find("[data-add-found]", dialog);
  let timer = 0;
  let asked = 0;
  const search = async () => {
    const mine = ++asked;
    try {
      const answer = await fetch(`/frame/search?q=${encodeURIComponent(input.value)}`, {
        headers: { Accept: "application/json" },
      });
      const { runs } = await answer.json();
      if (mine !== asked) return;
      const here = new Set(ids());
      const rows = runs.map((run) => {
        const word = here.has(run.id) ? el("span", { class: "faint small" }, gettext("already here")) : icon("plus");
        return el(
          "button",
          {
            class: "menu-item",
            type: "button",
            disabled: here.has(run.id),
            onclick: () => {
              dialog.close();
              add(run.id);
            },
          },
          word,
          el("span", { class: "cut" }, run.name),
          el("code", { class: "faint" }, run.id),
          stateBadge(run.state),
        );
      });
      list.replaceChildren(
        ...(rows.length
          ? rows
          : [el("p", { class: "menu-head" }, gettext("Nothing found. Try another part of the name."))]),
      );
    } catch {
      list.replaceChildren(
        el("p", { class: "menu-head" }, gettext("The console does not answer. Try again in a moment.")),
      );
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, 120);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    list.querySelector("button:not(:disabled)")?.click();
  });
  new MutationObserver(() => {
    if (dialog.open) {
      input.value = "";
      search();
      input.focus();
    }
  }).observe(dialog, { attributes: true, attributeFilter: ["open"] });
  if (dialog.open) search(); // opened before this module was here
  pickProposals();
}

function pickProposals() {
  const form = document.querySelector("form[data-pick]");
  if (!form) return;
  const hidden = find("input[data-pick-runs]", form);
  const here = hidden.value.split(",").filter(Boolean);
  const show = () => {
    const chosen = [...form.querySelectorAll("input[data-pick-run]:checked")].map((box) => box.value);
    hidden.value = [...here, ...chosen].join(",");
    find("button[data-pick-go]", form).disabled = here.length + chosen.length < 2;
  };
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.href = `${form.action}?runs=${hidden.value}`;
  });
  show();
}
