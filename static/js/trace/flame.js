/** The flame graph of a window, and the same as tables: top-down along the calls, bottom-up by each name's own time. */

import { el, gettext, grouped } from "../format.js";
import { placed } from "./flame_tree.js";
import { categoryWord } from "./palette.js";
import { span } from "./times.js";

const ROW = 18; // pixels
const NARROWEST = 0.0008; // of the width
const MOST_ROWS = 400; // of a table
const LEAST_SHARE = 0.002;

/** @import { FlameNode, Placed } from "./flame_tree.js" */

const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "—");

export class FlameGraph {
  constructor(body) {
    this.body = body;
    /** @type {{ total: number, nodes: FlameNode[] }} */
    this.answer = { total: 0, nodes: [] };
    this.placed = placed(this.answer.nodes);
    /** @type {string[]} */
    this.zoom = []; // names from the root to what is looked at
    body.addEventListener("click", (event) => {
      const button = event.target instanceof Element ? event.target.closest("[data-node]") : null;
      if (button) this.#zoomTo(Number(button.dataset.node));
    });
  }

  /** Show an answer of GET .../flame, as near as before where the same calls are in it. */
  show(answer) {
    this.answer = answer;
    this.placed = placed(answer.nodes);
    this.#draw();
  }

  #zoomTo(number) {
    const { tree } = this.placed;
    const names = [];
    for (let at = number; at >= 0; at = tree[at].parent) names.unshift(tree[at].name);
    const isSame = names.join("\n") === this.zoom.join("\n");
    this.zoom = isSame ? names.slice(0, -1) : names;
    this.#draw();
  }

  /** Return the node that is looked at, null for all. */
  #focus() {
    let list = this.placed.roots;
    /** @type {Placed | null} */
    let found = null;
    for (const name of this.zoom) {
      const next = list.find((node) => node.name === name);
      if (!next) break;
      found = next;
      list = next.children;
    }
    return found;
  }

  #draw() {
    const { tree } = this.placed;
    const focus = this.#focus();
    const whole = this.answer.total;
    const [from, width] = focus ? [focus.left, focus.total] : [0, whole];
    const held = el("div", { class: "trace-flame" });
    let deepest = 0;
    for (const [number, node] of tree.entries()) {
      const left = Math.max((node.left - from) / width, 0);
      const right = Math.min((node.left + node.total - from) / width, 1);
      if (right - left < NARROWEST) continue;
      deepest = Math.max(deepest, node.depth);
      const isAbove = focus && node.depth < focus.depth;
      const times = [span(node.total), share(node.total, whole), `${gettext("own")} ${span(node.own)}`];
      const button = el(
        "button",
        {
          type: "button",
          "data-node": number,
          "data-category": node.category,
          class: isAbove ? "is-above" : false,
          title: `${node.name}\n${times.join(" · ")} · ${grouped(node.count)} × ${categoryWord(node.category)}`,
        },
        right - left > 0.02 ? node.short : "",
      );
      Object.assign(button.style, {
        left: `${left * 100}%`,
        width: `calc(${(right - left) * 100}% - 1px)`,
        top: `${node.depth * ROW}px`,
      });
      held.append(button);
    }
    held.style.height = `${(deepest + 1) * ROW}px`;
    this.body.replaceChildren(held);
  }
}

/** Return the calls as a table, each below what called it; what takes less than a five hundredth is left out. */
export function topDown({ nodes, total }) {
  const { roots } = placed(nodes);
  const rows = [];
  const walk = (list) => {
    for (const node of list) {
      if (rows.length >= MOST_ROWS || node.total < total * LEAST_SHARE) continue;
      const row = line(node, total, node.depth);
      rows.push(row);
      walk(node.children);
    }
  };
  walk(roots);
  return table(rows);
}

/** Return names by their own time, each with what called it. */
export function bottomUp({ names, total }) {
  return table(
    names.flatMap((one) => [
      line(one, total, 0),
      ...one.callers
        .filter(({ name }) => name)
        .slice(0, 3)
        .map(({ name, own }) =>
          el(
            "tr",
            { class: "is-caller" },
            indented(el("td", {}, el("span", { class: "mono cut", title: name }, `← ${name}`)), 1),
            el("td", { class: "num" }, span(own)),
            el("td", { class: "num" }, share(own, total)),
            el("td", {}),
            el("td", {}),
          ),
        ),
    ]),
  );
}

function line({ name, short, category, count, total, own }, whole, depth) {
  const look = el(
    "button",
    { class: "trace-name", type: "button", "data-look": name, title: `${name} (${categoryWord(category)})` },
    el("i", { class: "swatch", "data-category": category }),
    el("span", { class: "mono cut" }, short),
  );
  return el(
    "tr",
    {},
    indented(el("td", {}, look), depth),
    el("td", { class: "num" }, span(own)),
    el("td", { class: "num" }, share(own, whole)),
    el("td", { class: "num" }, span(total)),
    el("td", { class: "num" }, grouped(count)),
  );
}

function indented(cell, depth) {
  cell.style.paddingLeft = `${12 + Math.min(depth, 30) * 14}px`;
  return cell;
}

function table(rows) {
  const head = [gettext("Name"), gettext("Own"), gettext("Share"), gettext("Total"), gettext("Count")];
  return el(
    "table",
    { class: "table is-compact trace-tree" },
    el("thead", {}, el("tr", {}, ...head.map((text, i) => el("th", { scope: "col", class: i ? "num" : false }, text)))),
    el("tbody", {}, ...rows),
  );
}
