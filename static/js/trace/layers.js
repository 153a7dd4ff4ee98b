/** The layers of a trace: their states as they come by websocket, without a reload; each one is shown as soon as it is ready. */

import { get, send } from "../api.js";
import { around, find } from "../dom.js";
import { el, fill, gettext, grouped, icon, laneName, messageOf, ngettext, renew } from "../format.js";
import { openFeed } from "../socket.js";
import { toast } from "../toast.js";

const LOOKS = {
  uploading: ["importing", "upload"],
  queued: ["queued", "clock"],
  importing: ["importing", "circle-half-2"],
  ready: ["ready", "check"],
  failed: ["failed", "x"],
};
const RUNNING = ["armed", "recording", "stopping"];
const PHASES_MS = 1000;

export class Layers extends EventTarget {
  constructor({ page }) {
    super();
    this.page = page;
    this.trace = page.trace;
    this.details = new Map(); // layer id -> what GET .../layers/<id> gave
    this.reading = new Set();
    this.held = find("[data-layers]");
    this.held.addEventListener("click", (event) => this.#again(around(event, "button[data-again]")));
  }

  of(id) {
    return this.trace.layers.find((layer) => layer.id === id) ?? null;
  }

  get numReady() {
    return this.details.size;
  }

  /** Return true while something may still come. */
  get isWaiting() {
    return (
      this.trace.layers.some(({ state }) => ["uploading", "queued", "importing"].includes(state)) ||
      (this.trace.capture && !["ready", "failed", "withdrawn"].includes(this.trace.capture.state))
    );
  }

  /** Show what the page came with, and follow what changes. */
  async start() {
    this.#draw();
    const reading = [this.#readPhases(), ...this.#fresh().map((layer) => this.#read(layer))];
    openFeed({ path: `/ws/traces/${this.page.id}`, after: null, onMessage: (message) => this.#apply(message) });
    await Promise.all(reading);
    this.#followRun();
  }

  #apply(message) {
    if (message.type !== "trace") return;
    if (
      message.trace.layers.some(
        ({ id, state, made }) => state === "ready" && this.details.has(id) && this.details.get(id).made !== made,
      )
    ) {
      location.reload(); // imported again: its lanes, events and counters are others; the address keeps what is looked at
      return;
    }
    const before = this.trace.capture?.state;
    this.trace = this.page.trace = message.trace;
    this.#draw();
    const fresh = this.#fresh();
    for (const layer of fresh) this.#read(layer);
    if (fresh.length || before !== this.trace.capture?.state) this.#readPhases();
    this.dispatchEvent(new Event("state"));
  }

  #fresh() {
    return this.trace.layers.filter(
      ({ id, state }) => state === "ready" && !this.details.has(id) && !this.reading.has(id),
    );
  }

  async #read(layer) {
    this.reading.add(layer.id);
    try {
      const detail = await get(`${this.page.api}/layers/${layer.id}`);
      this.details.set(layer.id, detail);
      this.dispatchEvent(new CustomEvent("layer", { detail }));
    } catch (error) {
      this.dispatchEvent(new CustomEvent("problem", { detail: error }));
    } finally {
      this.reading.delete(layer.id);
    }
  }

  async #readPhases() {
    if (!this.page.run) return;
    try {
      const answer = await get(`${this.page.api}/phases`);
      this.through = answer.through_seq;
      this.dispatchEvent(new CustomEvent("phases", { detail: answer }));
    } catch (error) {
      this.dispatchEvent(new CustomEvent("problem", { detail: error }));
    }
  }

  /** While the steps are being recorded, each frame of the run may bring phases. */
  #followRun() {
    if (!this.page.run || !RUNNING.includes(this.trace.capture?.state)) return;
    const again = () => {
      this.soon ||= setTimeout(async () => {
        this.soon = 0;
        await this.#readPhases();
        if (!RUNNING.includes(this.trace.capture?.state)) feed.close();
      }, PHASES_MS);
    };
    const feed = openFeed({
      path: `/ws/runs/${this.page.run}`,
      after: this.through ?? 0,
      onMessage: (message) => {
        if (message.type === "frame") again();
      },
      onReset: async () => {
        await this.#readPhases();
        return this.through;
      },
    });
  }

  async #again(button) {
    if (!button) return;
    button.disabled = true;
    try {
      await send("POST", `${this.page.api}/layers/${button.dataset.again}/import`);
    } catch (error) {
      toast(messageOf(error), { isError: true });
      button.disabled = false;
    }
  }

  #draw() {
    renew(
      this.held,
      this.trace.layers.map((layer) => {
        const [look, name] = LOOKS[layer.state] ?? LOOKS.queued;
        const who = layer.role ? laneName({ role: layer.role, rank: layer.rank ?? 0 }) : layer.file_name;
        const title = [
          layer.file_name,
          layer.kind,
          layer.events === null
            ? ""
            : fill(ngettext("%(n)s event", "%(n)s events", layer.events), { n: grouped(layer.events) }),
          layer.problem,
        ]
          .filter(Boolean)
          .join("\n");
        return el(
          "li",
          { class: "trace-layer", title, "data-layer": layer.id, "data-layer-state": layer.state },
          el("span", { class: "state", "data-state": look }, icon(name), stateText(layer)),
          el("span", { class: "cut" }, who),
          layer.problem && el("span", { class: "cause cut", title: layer.problem }, layer.problem),
          layer.is_outdated && el("span", { class: "small quiet" }, gettext("imported by an older version")),
          (layer.state === "failed" || layer.is_outdated) &&
            this.page.canEdit &&
            layer.sha256 &&
            el("button", { class: "btn btn-sm", type: "button", "data-again": layer.id }, gettext("Import again")),
        );
      }),
    );
  }
}

function stateText({ state, progress, received, size }) {
  const share = (part) => `${Math.floor(part * 100)} %`;
  if (state === "importing") return fill(gettext("importing %(share)s"), { share: share(progress) });
  if (state === "uploading") return fill(gettext("arriving %(share)s"), { share: share(size ? received / size : 0) });
  return { queued: gettext("queued"), ready: gettext("ready"), failed: gettext("failed") }[state] ?? state;
}
