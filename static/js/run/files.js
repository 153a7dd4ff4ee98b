/** What the run left: models, checkpoints, TensorBoard events, logs; each with its state, and a download once it is here. */

import { get, send } from "../api.js";
import { field, find } from "../dom.js";
import { bytes, el, fill, gettext, grouped, icon, messageOf, renew, write } from "../format.js";
import { toast } from "../toast.js";
import { Merges } from "./merges.js";

const QUICK_MS = 2000; // while bytes arrive
const WAITING_MS = 5000; // while a model waits for its turn
const SLOW_MS = 15000;

export class FileTab {
  constructor({ page, store }) {
    this.page = page;
    this.store = store;
    this.artifacts = [];
    this.merges = new Merges({ page, onChange: () => this.load() });
    this.listeners = [];
    store.on("artifacts", () => this.soon());
    store.on("branches", () => this.#draw());
  }

  show() {
    this.load();
  }

  /** Call `listener` with the artifacts whenever they changed. */
  onChange(listener) {
    this.listeners.push(listener);
  }

  /** Return the models that are ready: first the final one of the newest attempt that has one, else the newest first. */
  get models() {
    const isFinal = (one) => Number(one.name.includes("final"));
    return this.artifacts
      .filter((one) => one.type === "model" && one.is_ready)
      .sort((a, b) => isFinal(b) - isFinal(a) || b.attempt - a.attempt || b.step - a.step);
  }

  soon() {
    this.waiting ||= setTimeout(() => {
      this.waiting = 0;
      this.load();
    }, 300);
  }

  async load() {
    try {
      const answer = await get(`${this.page.api}/artifacts`);
      this.artifacts = answer.artifacts ?? answer;
      await this.merges.load(this.artifacts);
      this.#draw();
      for (const listener of this.listeners) listener(this.artifacts);
      clearTimeout(this.again);
      const open = this.artifacts.filter((one) => !one.is_ready && one.size > 0 && one.type !== "checkpoint"); // those stay on the cluster
      const isCopying = open.some((one) => one.received > 0);
      const isQuick = isCopying || this.merges.isMaking;
      if (isQuick || this.merges.isWaiting || (open.length && !this.isEnded))
        this.again = setTimeout(() => this.load(), isQuick ? QUICK_MS : this.merges.isWaiting ? WAITING_MS : SLOW_MS);
    } catch (error) {
      this.#problem(error);
    }
  }

  update(header) {
    const isEnded = ["finished", "failed", "stopped"].includes(header.state);
    if (isEnded && this.isEnded === false) this.load();
    this.isEnded = isEnded;
    this.state = header.state;
  }

  #draw() {
    const body = find("[data-files]");
    renew(
      body,
      this.artifacts.map((one) => this.#row(one)),
    );
    const empty = field("files-empty");
    empty.hidden = this.artifacts.length > 0;
    const texts = {
      queued: gettext("It is queued. Models and checkpoints appear here once it trains."),
      failed: gettext("It failed before it saved a file."),
      stopped: gettext("It was stopped before it saved a file."),
    };
    write(empty.firstElementChild, texts[this.state] ?? gettext("No file yet. The first checkpoint appears here."));
    write(document.querySelector('[data-count="files"]'), this.artifacts.length ? String(this.artifacts.length) : "");
  }

  #problem(error) {
    if (this.artifacts.length) return;
    const empty = field("files-empty");
    empty.hidden = false;
    empty.replaceChildren(
      el("p", {}, messageOf(error)),
      el(
        "button",
        {
          class: "btn",
          type: "button",
          onclick: () => {
            empty.replaceChildren(el("p"));
            this.load();
          },
        },
        gettext("Try again"),
      ),
    );
  }

  #row(one) {
    const { branches } = this.store;
    const isCheckpoint = one.type === "checkpoint" && !one.meta?.removed;
    const model = isCheckpoint
      ? this.models.find(({ attempt, step }) => attempt === one.attempt && step === one.step)
      : null;
    const tag =
      branches.attempts.length > 1
        ? el(
            "span",
            { class: "tag run-attempt-tag", title: fill(gettext("attempt %(attempt)s"), one) },
            `a${one.attempt}`,
          )
        : null;
    return el(
      "tr",
      { class: branches.isDead(one.attempt, one.step) ? "is-dead" : false },
      el("td", { class: "cut", title: one.path }, el("span", { class: "mono" }, one.name), tag),
      el("td", {}, one.type),
      el("td", { class: "num" }, one.step >= 0 ? grouped(one.step) : "—"),
      el("td", { class: "num" }, one.size ? bytes(one.size) : "—"),
      el(
        "td",
        { class: "mono faint" },
        one.sha256 ? el("span", { title: one.sha256 }, one.sha256.slice(0, 12)) : "—",
        one.sha256
          ? el(
              "button",
              {
                class: "btn btn-quiet btn-icon btn-sm",
                type: "button",
                "data-copy": one.sha256,
                "aria-label": gettext("Copy the checksum"),
              },
              icon("copy"),
            )
          : null,
      ),
      el("td", {}, this.#state(one), isCheckpoint && !model ? this.merges.state(one) : null),
      el(
        "td",
        { class: "num run-file-actions" },
        one.is_ready
          ? el(
              "a",
              { class: "btn btn-sm", href: fileUrl(this.page, one), download: true },
              icon("download"),
              gettext("Download"),
            )
          : this.#pin(one),
        isCheckpoint ? this.merges.action(one, model, model ? fileUrl(this.page, model) : "") : null,
        model ? this.merges.removal(model) : null,
      ),
    );
  }

  /** Offer to keep a checkpoint from being deleted for newer ones, or to let it go. */
  #pin(one) {
    if (one.type !== "checkpoint" || one.meta?.removed || !this.page.canEdit) return "";
    const isPinned = Boolean(one.meta?.pinned);
    const text = isPinned ? gettext("Unpin") : gettext("Pin");
    return el(
      "button",
      {
        class: "btn btn-sm",
        type: "button",
        "aria-pressed": String(isPinned),
        "aria-label": fill(gettext("%(what)s checkpoint %(step)s"), { what: text, step: one.step }),
        title: isPinned ? gettext("It may be deleted again") : gettext("Keep it from being deleted for newer ones"),
        onclick: () => this.#setPin(one, !isPinned),
      },
      icon("pin"),
      text,
    );
  }

  async #setPin(one, isPinned) {
    try {
      await send("PUT", `${this.page.api}/checkpoints/${one.attempt}/${one.step}/pin`, { is_pinned: isPinned });
      this.load();
    } catch (error) {
      toast(messageOf(error), { isError: true });
    }
  }

  #state(one) {
    if (one.meta?.removed)
      return el(
        "span",
        {
          class: "state",
          "data-state": "stopped",
          title: gettext("The trainer deleted it when newer ones came (knob checkpoint.keep)."),
        },
        icon("trash"),
        gettext("removed"),
      );
    if (one.meta?.pinned && !one.problem)
      return el("span", { class: "state", "data-state": "ready" }, icon("pin"), gettext("pinned"));
    if (one.problem)
      return el("span", { class: "state", "data-state": "missing", title: one.problem }, icon("x"), gettext("lost"));
    if (one.is_ready) return el("span", { class: "state", "data-state": "ready" }, icon("check"), gettext("ready"));
    if (one.received > 0 && one.size > 0) {
      const text = fill(gettext("copying %(share)s %"), { share: Math.floor((100 * one.received) / one.size) });
      return el(
        "span",
        { class: "state num", "data-state": "importing", title: `${bytes(one.received)} / ${bytes(one.size)}` },
        icon("circle-half-2"),
        text,
      );
    }
    return el(
      "span",
      { class: "state", "data-state": "missing" },
      icon("clock"),
      this.isEnded || one.type === "checkpoint" ? gettext("only on the cluster") : gettext("waiting to be copied"),
    );
  }
}

/** Return the address of an artifact's download. */
export const fileUrl = (page, artifact) => artifact.download_url ?? `${page.url}/files/${artifact.id}`;
