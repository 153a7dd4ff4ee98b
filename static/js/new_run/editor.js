// The text of a reward file: line numbers, indenting, an example, a chosen file.

import { find } from "../dom.js";
import { gettext } from "../format.js";

const EXAMPLE = `import re


def reward(prompt: str, completion: str, answer: str) -> float:
    """1 for the right number after ####, and 0.1 for marking a number at all."""
    found = re.search(r"####\\s*(-?[\\d,.]+)", completion)
    if found is None:
        return 0.0
    return 1.0 if found[1].replace(",", "").rstrip(".") == answer.strip() else 0.1
`;

/** `commit(text, fileName)` puts a text into the form as one change that can be undone. */
export function wireEditor(form, { commit }) {
  const area = find("textarea[name='reward.source']", form);
  const gutter = find("[data-gutter]", form);
  let isLeaving = false;

  function number() {
    const lines = area.value.split("\n").length;
    if (gutter.dataset.lines !== String(lines)) {
      gutter.dataset.lines = String(lines);
      gutter.textContent = Array.from({ length: lines }, (_, i) => i + 1).join("\n");
    }
    gutter.scrollTop = area.scrollTop;
  }

  function insert(text) {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new InputEvent("input", { bubbles: true }));
  }

  area.addEventListener("input", number);
  area.addEventListener("scroll", number);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      isLeaving = true;
      return;
    }
    if (event.key === "Tab" && !event.shiftKey && !isLeaving) {
      insert("    ");
      event.preventDefault();
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
      const line = area.value.slice(0, area.selectionStart).split("\n").at(-1) ?? "";
      insert(`\n${/^\s*/.exec(line)?.[0]}${/:\s*$/.test(line) ? "    " : ""}`);
      event.preventDefault();
    }
    if (event.key !== "Tab") isLeaving = false;
  });
  find("[data-reward-template]", form).addEventListener("click", () => commit(EXAMPLE, "reward.py"));
  const chosen = find("input[data-reward-file]", form);
  chosen.addEventListener("change", async () => {
    const file = chosen.files?.[0];
    if (!file) return;
    if (file.size > 64 * 1024)
      document.dispatchEvent(
        new CustomEvent("pitwall:toast", {
          detail: {
            text: gettext("A reward file holds at most 64 KiB. Import a package for the rest."),
            isError: true,
          },
        }),
      );
    else commit(await file.text(), file.name);
    chosen.value = "";
  });
  number();
  return number;
}
