/** The rewards of the samples as a histogram that filters, and reward against length (or step, of one prompt). */

import * as numbers from "../charts/numbers.js";
import { find } from "../dom.js";
import { el, fill, gettext, grouped, ngettext, svg, write } from "../format.js";
import { isInRange, rangeOfBins, scaleOf } from "./sample-range.js";

/** @import { Range } from "./sample-range.js" */
/** @typedef {[id: number, step: number, tokens: number, reward: number]} Point */
/** @typedef {{ total: number, num_unscored: number, edges: number[], counts: number[], points: Point[] }} Distribution */

const EDGE = 6; // px around the points

export class SampleCharts {
  /** @param {{ onRange: (range: Range) => void, onSample: (id: number) => void }} listener */
  constructor({ onRange, onSample }) {
    this.node = find("[data-sample-charts]");
    this.bins = find("[data-sample-bins]", this.node);
    this.plot = find("[data-sample-plot]", this.node);
    this.onRange = onRange;
    /** @type {number[]} */
    this.edges = [];
    /** @type {number | null} where a drag began, or Shift goes on from */
    this.anchor = null;
    this.bins.addEventListener("pointerdown", (event) => this.#press(event));
    this.bins.addEventListener("pointerover", (event) => {
      if (this.isDragging) this.#mark(this.#binAt(event));
    });
    addEventListener("pointerup", () => this.#release());
    this.bins.addEventListener("click", (event) => {
      if (event.detail === 0) this.#key(event); // Enter or Space; the pointer's own was a drag
    });
    this.plot.addEventListener("click", (event) => {
      const id = event.target instanceof Element ? event.target.getAttribute("data-id") : null;
      if (id) onSample(Number(id));
    });
  }

  /**
   * @param {Distribution} spread
   * @param {Range} range
   * @param {boolean} bySteps reward against the step instead of the length
   */
  draw(spread, range, bySteps) {
    this.edges = spread.edges;
    this.range = range;
    this.node.hidden = spread.counts.length === 0;
    if (this.node.hidden) return;
    const most = Math.max(...spread.counts);
    this.bins.replaceChildren(
      ...spread.counts.map((count, i) => {
        const text = fill(
          ngettext("reward %(from)s to %(to)s: %(n)s sample", "reward %(from)s to %(to)s: %(n)s samples", count),
          {
            from: numbers.number(spread.edges[i]),
            to: numbers.number(spread.edges[i + 1]),
            n: grouped(count),
          },
        );
        const bar = el("i");
        bar.style.height = count ? `${Math.max(2, (count / most) * 100)}%` : "0";
        return el("button", { type: "button", "data-bin": String(i), "aria-label": text, title: text }, bar);
      }),
    );
    this.#show(range);
    write(find("[data-sample-low]", this.node), numbers.number(spread.edges[0]));
    write(find("[data-sample-high]", this.node), numbers.number(spread.edges.at(-1)));
    const unscored = fill(ngettext("%(n)s without a reward", "%(n)s without a reward", spread.num_unscored), {
      n: grouped(spread.num_unscored),
    });
    write(find("[data-sample-unscored]", this.node), spread.num_unscored ? unscored : "");
    this.#points(spread, bySteps);
  }

  /** @param {Distribution} spread @param {boolean} bySteps */
  #points({ points, total, num_unscored }, bySteps) {
    const at = (/** @type {Point} */ [, step, tokens]) => (bySteps ? step : tokens);
    const { width, height } = this.plot.getBoundingClientRect();
    this.plot.setAttribute("viewBox", `0 0 ${width || 1} ${height || 1}`);
    const x = scaleOf(points.map(at), EDGE, width - EDGE);
    const y = scaleOf(this.edges, height - EDGE, EDGE);
    const dots = points.map((point) => {
      const [id, , , reward] = point;
      const kind = reward >= 1 ? "good" : reward <= 0 ? "bad" : "part";
      const place = { cx: x(at(point)).toFixed(1), cy: y(reward).toFixed(1), r: "3" };
      return svg("circle", { ...place, class: `is-${kind}`, "data-id": String(id) });
    });
    this.plot.replaceChildren(...dots);
    const values = points.map(at);
    write(find("[data-sample-x]", this.node), bySteps ? gettext("Reward by step") : gettext("Reward by length"));
    const ends = values.length ? [Math.min(...values), Math.max(...values)].map(grouped) : ["—", "—"];
    const unit = bySteps ? gettext("step") : gettext("tokens");
    write(find("[data-sample-first]", this.node), `${unit} ${ends[0]}`);
    write(find("[data-sample-last]", this.node), ends[1]);
    const scored = total - num_unscored;
    const part = fill(gettext("%(n)s of %(of)s points"), { n: grouped(points.length), of: grouped(scored) });
    write(find("[data-sample-part]", this.node), points.length < scored ? part : "");
    const [low, high] = [this.edges[0], this.edges.at(-1)].map(numbers.number);
    write(find("[data-sample-y]", this.node), fill(gettext("%(from)s to %(to)s"), { from: low, to: high }));
    this.plot.setAttribute("aria-label", bySteps ? gettext("Reward by step") : gettext("Reward by length"));
  }

  /** @param {Range} range */
  #show(range) {
    const isAll = range.from === null && range.below === null;
    for (const button of this.bins.querySelectorAll("button")) {
      const isIn = isInRange(this.edges, Number(button.dataset.bin), range);
      button.setAttribute("aria-pressed", String(!isAll && isIn));
      button.classList.toggle("is-out", !isIn);
    }
  }

  /** @param {Event} event */
  #binAt(event) {
    const button = event.target instanceof Element ? event.target.closest("[data-bin]") : null;
    return button ? Number(button.dataset.bin) : null;
  }

  /** @param {PointerEvent} event */
  #press(event) {
    const bin = this.#binAt(event);
    if (bin === null || event.button !== 0) return;
    if (!event.shiftKey || this.anchor === null) this.anchor = bin;
    this.isDragging = true;
    if (event.target instanceof Element) event.target.releasePointerCapture(event.pointerId); // of a finger
    this.#mark(bin);
  }

  #mark(/** @type {number | null} */ bin) {
    if (bin === null || this.anchor === null) return;
    this.end = bin;
    this.#show(rangeOfBins(this.edges, this.anchor, bin));
  }

  #release() {
    if (!this.isDragging || this.anchor === null) return;
    this.isDragging = false;
    this.#choose(this.anchor, this.end ?? this.anchor);
  }

  /** @param {MouseEvent} event */
  #key(event) {
    const bin = this.#binAt(event);
    if (bin === null) return;
    if (!event.shiftKey || this.anchor === null) this.anchor = bin;
    this.#choose(this.anchor, bin);
  }

  /** Filter by these bins; the same ones again are all. */
  #choose(/** @type {number} */ one, /** @type {number} */ other) {
    const range = rangeOfBins(this.edges, one, other);
    const isSame = this.range && range.from === this.range.from && range.below === this.range.below;
    this.onRange(isSame ? { from: null, below: null } : range);
  }
}
