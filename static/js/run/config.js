/** The effective configuration: filter, changed only, and the texts that launch the run again. */

import { around, find } from "../dom.js";
import { gettext } from "../format.js";
import { toast } from "../toast.js";

export class ConfigTab {
  constructor({ query }) {
    this.rows = [...document.querySelectorAll("[data-config-rows] tr")];
    this.search = find("input[data-config-search]");
    this.changed = find("input[data-config-changed]");
    this.changed.checked = query.get("changed") === "1";
    this.search.addEventListener("input", () => this.filter());
    this.changed.addEventListener("change", () => {
      query.set("changed", this.changed.checked ? "1" : "");
      this.filter();
    });
    this.filter();
    document.addEventListener("click", (event) => {
      const button = around(event, "[data-copy-text]");
      if (button) copyText(find(`[data-text="${button.dataset.copyText}"]`).textContent);
    });
  }

  show() {}

  filter() {
    const needle = this.search.value.trim().toLowerCase();
    let shown = 0;
    for (const row of this.rows) {
      const fits =
        (!this.changed.checked || "changed" in row.dataset) && row.textContent.toLowerCase().includes(needle);
      row.hidden = !fits;
      shown += Number(fits);
    }
    find('[data-field="config-empty"]').hidden = shown > 0;
  }
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(gettext("Copied"));
  } catch {
    toast(gettext("The browser does not let pages copy here. Select the text and copy it yourself."), {
      isError: true,
    });
  }
}
