// What the rules find in the form, as the server says it: jump to a knob, put an error aside. Fixes are the panel's.

import { around } from "../dom.js";

export class Findings {
  #form;
  #place;
  #shown = "";

  constructor(form, { onOverride, onJump }) {
    this.#form = form;
    this.#place = form.querySelector("[data-findings-place]");
    this.blocking = [];
    this.#place.addEventListener("click", (event) => {
      const button = around(event, "button");
      if (!button) return;
      if (button.dataset.jump !== undefined) onJump(button.dataset.jump);
      else if (button.dataset.override !== undefined) onOverride(this.#toggled(button.dataset.override));
    });
  }

  /** Take the check's answer. What has not changed stays as it is, so that no button moves from under a finger. */
  take({ findings: raw, blocking }) {
    const findings = raw.trim();
    this.blocking = blocking;
    this.#place.classList.remove("is-stale");
    if (this.#shown === findings) return;
    this.#shown = findings;
    this.#place.innerHTML = findings; // escaped by the server's template
  }

  /** The form is not whole, so that nothing new is found. */
  dim() {
    this.#place.classList.add("is-stale");
  }

  /** Bring the gravest into sight. */
  focus() {
    const title = document.getElementById("findings-title");
    title?.scrollIntoView({ block: "nearest" });
    title?.focus();
  }

  #toggled(rule) {
    const now = this.#form.elements.overridden.value.split(" ").filter(Boolean);
    return now.includes(rule) ? now.filter((other) => other !== rule) : [...now, rule];
  }
}
