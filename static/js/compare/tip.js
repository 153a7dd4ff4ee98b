/** What stands under the crosshair: each run's value, base first. It follows the pointer and moves nothing else. */

import { el } from "../format.js";

const OFFSET = 14;
const ONE_COLUMN = 16; // more runs stand side by side: all of fifty have room in a window

export class Tip {
  constructor(node) {
    this.node = node;
    this.owner = null;
    this.head = el("span", { class: "cmp-tip-head num" });
    this.rows = []; // kept from one move of the pointer to the next
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
    if (this.rows.length !== rows.length) {
      this.rows = rows.map(newRow);
      this.node.classList.toggle("is-many", rows.length > ONE_COLUMN);
      this.node.replaceChildren(this.head, ...this.rows.map((row) => row.node));
    }
    write(this.head, head);
    for (const [i, { label, color, text }] of rows.entries()) {
      const row = this.rows[i];
      row.swatch.dataset.runColor = color.replace("--run-", "");
      write(row.label, label);
      write(row.text, text);
    }
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

function newRow() {
  const [swatch, label, text] = [
    el("i", { class: "swatch is-round" }),
    el("span", { class: "cut" }),
    el("b", { class: "num" }),
  ];
  return { node: el("span", { class: "cmp-tip-row" }, swatch, label, text), swatch, label, text };
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
