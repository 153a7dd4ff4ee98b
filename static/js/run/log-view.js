/** A window on very many lines: only those in sight are in the page. Lines are one row high; the scroll bar is the browser's. */

import { clock } from "../charts/numbers.js";
import { find } from "../dom.js";
import { el, gettext } from "../format.js";
import { pieces } from "./log-search.js";

const ROW = 18; // pixels, as in run.css
const AROUND_MS = 1000; // of a line, on the timeline
const AROUND = 30; // rows drawn above and below the window

export class LogView {
  /** `url` is the run's page; `onEdge("top" | "bottom")` asks for more lines, `onLink(line)` is a click on a line's number, `onScroll(isAtEnd)`. */
  constructor(node, { url, onEdge, onLink, onScroll }) {
    this.node = node;
    this.space = find("[data-log-space]", node);
    this.url = url;
    this.onEdge = onEdge;
    this.onLink = onLink;
    this.onScroll = onScroll;
    /** @type {any[]} */
    this.lines = [];
    /** @type {number | null} */
    this.numOlder = 0; // lines before them; null: not counted
    this.needle = "";
    this.isExpression = false;
    this.target = "";
    this.hit = "";
    this.hasSource = true;
    this.hasAttempt = false;
    this.isKept = false; // at its end, whatever becomes of its height
    this.rows = new Map();
    node.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    new ResizeObserver(() => (this.isKept ? this.toEnd() : this.draw())).observe(node);
  }

  get isAtEnd() {
    return this.node.scrollTop + this.node.clientHeight >= this.lines.length * ROW - ROW;
  }

  /** Show other lines altogether; `numOlder` come before them. */
  replace(/** @type {any[]} */ lines, /** @type {number | null | undefined} */ numOlder) {
    this.lines = lines;
    this.numOlder = numOlder ?? null;
    this.redraw();
  }

  /** Add older lines on top; what is in sight stays where it is. */
  prepend(/** @type {any[]} */ lines, /** @type {number | null | undefined} */ numOlder) {
    this.lines = [...lines, ...this.lines];
    this.numOlder = numOlder ?? null;
    this.#forget();
    this.#size();
    this.node.scrollTop += lines.length * ROW;
    this.draw();
  }

  /** Add newer lines below. */
  append(lines) {
    for (const line of lines) this.lines.push(line);
    this.#size();
    this.draw();
  }

  /** Go to the newest line. */
  toEnd() {
    this.node.scrollTop = this.lines.length * ROW;
    this.draw();
  }

  /** Bring the line with this cursor to the middle; returns false if it is not among the lines. */
  reveal(cursor) {
    const at = this.lines.findIndex((line) => line.cursor === cursor);
    if (at < 0) return false;
    this.node.scrollTop = at * ROW - this.node.clientHeight / 2;
    this.redraw();
    return true;
  }

  /** Draw all rows in sight anew: another search, another mark. */
  redraw() {
    this.#forget();
    this.#size();
    this.draw();
  }

  #forget() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  #size() {
    this.space.style.height = `${this.lines.length * ROW}px`;
  }

  draw() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / ROW) - AROUND);
    const last = Math.min(this.lines.length, Math.ceil((this.node.scrollTop + this.node.clientHeight) / ROW) + AROUND);
    for (const [at, row] of this.rows) {
      if (at >= first && at < last) continue;
      row.remove();
      this.rows.delete(at);
    }
    const fresh = [];
    for (let at = first; at < last; at += 1) {
      if (this.rows.has(at)) continue;
      const row = this.#row(this.lines[at], this.numOlder === null ? "·" : String(this.numOlder + at + 1));
      row.style.top = `${at * ROW}px`;
      this.rows.set(at, row);
      fresh.push(row);
    }
    this.space.append(...fresh);
  }

  #row(line, place) {
    const number = el(
      "a",
      {
        href: `?line=${line.cursor}`,
        class: "num",
        onclick: (event) => {
          event.preventDefault();
          this.onLink(line);
        },
      },
      place,
    );
    const classes = ["run-log-line", line.cursor === this.target && "is-target", line.cursor === this.hit && "is-hit"]
      .filter(Boolean)
      .join(" ");
    return el(
      "div",
      { class: classes, "data-stream": line.stream, "data-cursor": line.cursor },
      number,
      el(
        "span",
        { class: "run-log-source num" },
        this.#time(line),
        this.hasAttempt ? ` a${line.attempt}` : "",
        this.hasSource ? ` ${line.role} ${line.rank}`.padEnd(13) : "",
      ),
      el("span", { class: "run-log-text" }, ...this.#marked(line.text)),
    );
  }

  #marked(text) {
    const parts = pieces(text, this.needle, this.isExpression);
    return parts.map((piece) => (piece.isFound ? el("mark", {}, piece.text) : piece.text));
  }

  /** Return the time of a line: it leads to the timeline of that moment. */
  #time(line) {
    const at = new Date(line.at);
    const ns = (ms) => `${Math.floor(ms)}000000`;
    const href = `${this.url}/timeline?from=${ns(at.getTime() - AROUND_MS)}&to=${ns(at.getTime() + AROUND_MS)}`;
    return el("a", { href, class: "run-log-time", title: gettext("Show this moment on the timeline") }, clock(at));
  }

  #scrolled() {
    this.draw();
    if (this.node.scrollTop < 40 * ROW) this.onEdge("top");
    if (this.isAtEnd) this.onEdge("bottom");
    this.onScroll(this.isAtEnd);
  }
}
