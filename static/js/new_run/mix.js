// Rewards beside the first one: rows that write the list in the hidden input `reward.more`.

import { around, copyOf, find } from "../dom.js";
import { partsOf, textOf, weightOf } from "./parts.js";

/** Wire the rows; `changed()` is called after each edit. Returns what shows the rows of the form's text. */
export function wireMix(form, { changed }) {
  const section = find("[data-mix]", form);
  const kept = find("input[name='reward.more']", form);
  const list = find("[data-mix-parts]", section);
  /** @type {string | null} */
  let shown = null;

  function write(parts) {
    kept.value = textOf(parts);
    changed();
  }

  function row(part, number) {
    const node = copyOf("template#mix-part");
    for (const element of node.querySelectorAll("[data-part]")) {
      const input = /** @type {HTMLInputElement} */ (element);
      const { part: name = "", kinds = "" } = input.dataset;
      input.value = String(part[name] ?? (name === "weight" ? 1 : ""));
      input.hidden = Boolean(kinds) && !kinds.split(" ").includes(part.kind);
      input.addEventListener("change", () => {
        const parts = partsOf(kept.value);
        parts[number] = { ...parts[number], [name]: name === "weight" ? weightOf(input.value) : input.value };
        if (name !== "kind") shown = textOf(parts); // the row already shows it, and keeps the focus
        write(parts);
      });
    }
    find("[data-mix-remove]", node).addEventListener("click", () => {
      write(partsOf(kept.value).filter((_, i) => i !== number));
      find("[data-mix-add]", form).focus();
    });
    return node;
  }

  form.addEventListener("click", (event) => {
    if (!around(event, "[data-mix-add]")) return;
    write([...partsOf(kept.value), { kind: "format", weight: 1 }]);
    const heading = find("h3 button", section);
    if (heading.getAttribute("aria-expanded") === "false") heading.click(); // or nobody sees what was added
    list.lastElementChild?.querySelector("select")?.focus();
  });

  return function show({ isAble }) {
    section.hidden = !isAble || !partsOf(kept.value).length;
    find("[data-mix-add]", form).hidden = !isAble;
    if (kept.value === shown) return;
    shown = kept.value;
    list.replaceChildren(...partsOf(kept.value).map(row));
  };
}
