/** Tabs are addresses: a click shows the panel and moves the address, without loading the page again. */

import { around, find } from "../dom.js";

export class Tabs {
  constructor(query, show) {
    this.query = query;
    this.show = show;
    document.addEventListener("click", (event) => {
      const link = around(event, "a[data-tab]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
      event.preventDefault();
      const tab = find(`.run-tabs a[data-tab="${link.dataset.tab}"]`);
      this.query.write();
      history.pushState({ tab: link.dataset.tab }, "", this.query.on(new URL(tab.href).pathname));
      this.open(link.dataset.tab, link.dataset);
      if (link !== tab) scrollTo(0, 0);
    });
    addEventListener("popstate", () => {
      this.query.values = new URLSearchParams(location.search);
      const link = [...document.querySelectorAll(".run-tabs a[data-tab]")].find(
        (one) => new URL(one.href).pathname === location.pathname,
      );
      if (link) this.open(link.dataset.tab);
    });
  }

  /** Show the panel of `name`. */
  open(name, details = {}) {
    for (const panel of document.querySelectorAll("[data-panel]")) panel.hidden = panel.dataset.panel !== name;
    for (const link of document.querySelectorAll(".run-tabs a[data-tab]")) {
      if (link.dataset.tab === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.current = name;
    this.show(name, details);
  }
}
