/** What stands under the crosshair: each run's value, base first. It follows the pointer and moves nothing else. */

import { el } from "../format.js";

const OFFSET = 14;

export class Tip {
  constructor(node) {
    this.node = node;
    this.owner = null;
    document.addEventListener(
      "pointermove",
      (event) => {
        this.x = event.clientX;
        this.y = event.clientY;
        if (!this.node.hidden) this.#place();
      },
      { passive: true },
    );
  }

  /** Show rows of { label, color, text } of a chart under a head. */
  show(owner, head, rows) {
    this.owner = owner;
    this.node.replaceChildren(
      el("span", { class: "cmp-tip-head num" }, head),
      ...rows.map((row) => {
        const swatch = el("i", { class: "swatch is-round", "data-run-color": row.color.replace("--run-", "") });
        return el(
          "span",
          { class: "cmp-tip-row" },
          swatch,
          el("span", { class: "cut" }, row.label),
          el("b", { class: "num" }, row.text),
        );
      }),
    );
    this.node.hidden = false;
    this.#place();
  }

  /** Take it away; with an owner, only if it is that one's. */
  hide(owner = null) {
    if (owner === null || owner === this.owner) this.node.hidden = true;
  }

  #place() {
    const { width, height } = this.node.getBoundingClientRect();
    const left = this.x + OFFSET + width > innerWidth ? this.x - OFFSET - width : this.x + OFFSET;
    const top = Math.min(this.y + OFFSET, innerHeight - height - 4);
    this.node.style.left = `${Math.max(4, left)}px`;
    this.node.style.top = `${Math.max(4, top)}px`;
  }
}
