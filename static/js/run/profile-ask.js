/** Asking for a capture: the buttons in the head (key p), and the dialog behind the arrow. */

import { send } from "../api.js";
import { field, find } from "../dom.js";
import { el, fill, gettext, icon, messageOf, write } from "../format.js";
import { onKeys } from "../keys.js";
import { toast } from "../toast.js";
import { nextText, stepsTitle } from "./captures.js";
import { ProfileDialog } from "./profile-dialog.js";

const DEFAULT_STEPS = 2;
const RECORD_SECONDS = 60; // of the Record button: it ends by itself if it is forgotten

export class ProfileAsk extends EventTarget {
  constructor({ page, captures }) {
    super();
    this.page = page;
    this.captures = captures;
    this.buttons = document.querySelector("[data-profile-buttons]");
    /** @type {ProfileDialog | null} */
    this.dialog = null;
    if (!this.buttons) return; // viewers look on
    find('button[data-action="profile"]').addEventListener("click", () => this.quick());
    const dialog = new ProfileDialog({ page, captures, ask: (asked) => this.#ask(asked) });
    this.dialog = dialog;
    find('button[data-action="profile-more"]').addEventListener("click", () => dialog.open(this.#quickSteps()));
    onKeys({ p: () => this.#press() });
    find('button[data-action="record"]').addEventListener("click", () => this.#record());
    captures.addEventListener("change", () => this.#showRecord());
  }

  /** Offer what the state allows; filled on the Profile tab, where it is the thing to do. */
  update(header) {
    this.header = header;
    if (!this.buttons) return;
    const isLast = this.#left() === 0; // the last step has begun
    this.buttons.hidden = header.state !== "running" || isLast;
    write(field("profile-label"), nextText(this.#quickSteps()));
    this.#showRecord();
  }

  /** The capture by time that people can end now, if there is one. */
  #recording() {
    return this.captures.list.find(({ seconds, state }) => seconds > 0 && ["armed", "recording"].includes(state));
  }

  /** Record at once, or end what records. It is one button, so that the hand is where it has to be. */
  #showRecord() {
    const button = find('button[data-action="record"]');
    button.hidden = this.header?.state !== "running";
    const now = this.#recording();
    button.classList.toggle("is-recording", now?.state === "recording");
    button.title = now
      ? gettext("End the recording; its files are fetched while training goes on")
      : fill(gettext("Record from now on, %(most)s s at most: GPU kernels, or CPU operators"), {
          most: RECORD_SECONDS,
        });
    write(field("record-label"), now ? gettext("End recording") : gettext("Record"));
  }

  async #record() {
    const button = find('button[data-action="record"]');
    if (button.disabled) return;
    button.disabled = true;
    try {
      const now = this.#recording();
      if (now) {
        await send("POST", `${this.page.api}/captures/${now.id}/end`);
        await this.captures.load();
      } else await this.#ask({ seconds: RECORD_SECONDS });
    } catch (error) {
      toast(messageOf(error), { isError: true });
    } finally {
      button.disabled = false;
    }
  }

  /** Say whether the Profile tab is open. */
  emphasize(isPrimary) {
    for (const button of this.buttons?.querySelectorAll("button") ?? [])
      button.classList.toggle("btn-primary", isPrimary);
  }

  /** Return a button that does the same, for places that are empty. */
  button() {
    if (!this.dialog) return null;
    return el(
      "button",
      { class: "btn", type: "button", onclick: () => this.quick() },
      icon("target"),
      nextText(this.#quickSteps()),
    );
  }

  #left() {
    const { step, num_steps: steps } = this.header;
    return steps ? Math.max(steps - step - 1, 0) : DEFAULT_STEPS;
  }

  #quickSteps() {
    return Math.max(1, Math.min(DEFAULT_STEPS, this.#left()));
  }

  #press() {
    if (this.buttons?.hidden) return false;
    this.quick();
    return true;
  }

  /** Record the next steps on all workers, what the console takes where nobody says. */
  async quick() {
    const button = find('button[data-action="profile"]');
    if (button.disabled) return;
    button.disabled = true;
    try {
      await this.#ask({ num_steps: this.#quickSteps() });
    } catch (error) {
      toast(messageOf(error), { isError: true });
    } finally {
      button.disabled = false;
    }
  }

  async #ask(asked) {
    const capture = await send("POST", `${this.page.api}/captures`, asked);
    await this.captures.load();
    this.dispatchEvent(new CustomEvent("asked", { detail: capture.id }));
    const text = fill(gettext("%(steps)s will be recorded with %(tool)s"), {
      steps: stepsTitle(capture),
      tool: capture.tool,
    });
    const isThere = !find('[data-panel="profile"]').hidden;
    toast(
      text,
      isThere ? {} : { link: { url: `${this.page.url}/profile?capture=${capture.id}`, text: gettext("Watch it") } },
    );
  }
}
