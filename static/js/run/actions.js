/** What people do to a run: rename, stop, cancel, checkpoint. The console answers; nothing here guesses the outcome. */

import { send } from "../api.js";
import { controls, find } from "../dom.js";
import { fill, gettext, messageOf, write } from "../format.js";
import { STOP_UNDO_SECONDS, toast } from "../toast.js";

export class Actions {
  constructor(page, header) {
    this.page = page;
    this.header = header;
    document.querySelector('button[data-action="rename"]')?.addEventListener("click", () => this.#openRename());
    document.querySelector('form[data-form="rename"]')?.addEventListener("submit", (event) => this.#rename(event));
    document.querySelector('form[data-form="rename"]')?.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#closeRename();
    });
    document
      .querySelector('button[data-action="checkpoint"]')
      ?.addEventListener("click", (event) => this.#checkpoint(event.currentTarget));
    document.querySelector('button[data-action="stop"]')?.addEventListener("click", () => this.#openStop());
    document
      .querySelector('button[data-action="stop-now"]')
      ?.addEventListener("click", (event) => this.#stop(event.currentTarget));
    document
      .querySelector('button[data-action="cancel-retry"]')
      ?.addEventListener("click", (event) => this.#cancelRetry(event.currentTarget));
  }

  /** Offer what the state allows. */
  show({ state }) {
    const stop = document.querySelector('button[data-action="stop"]');
    if (!stop) return;
    stop.hidden = !["queued", "starting", "running"].includes(state);
    write(find('[data-field="stop-label"]'), state === "queued" ? gettext("Cancel") : gettext("Stop"));
    find('button[data-action="checkpoint"]').hidden = state !== "running" || !this.page.isNative; // no other trainer looks for commands
  }

  #openRename() {
    const form = find('form[data-form="rename"]');
    form.hidden = false;
    find('[data-field="name"]').hidden = true;
    find('button[data-action="rename"]').hidden = true;
    const { name } = controls(form);
    name.value = this.header.header.name;
    name.select();
  }

  #closeRename() {
    find('form[data-form="rename"]').hidden = true;
    find('[data-field="name"]').hidden = false;
    find('button[data-action="rename"]').hidden = false;
    find('button[data-action="rename"]').focus();
  }

  async #rename(event) {
    event.preventDefault();
    const name = event.currentTarget.elements.name.value.trim();
    if (!name) return;
    const before = this.header.header.name;
    try {
      await send("PATCH", this.page.api, { name });
      this.#named(name);
      this.#closeRename();
      toast(gettext("Renamed"), {
        undo: () => send("PATCH", this.page.api, { name: before }).then(() => this.#named(before)),
      });
    } catch (error) {
      toast(messageOf(error), { isError: true });
    }
  }

  #named(name) {
    this.header.show({ ...this.header.header, name });
    find('[data-field="name"]').title = name;
  }

  async #checkpoint(button) {
    button.disabled = true;
    try {
      await send("POST", `${this.page.api}/checkpoint`);
      toast(gettext("A checkpoint is saved after this step"));
    } catch (error) {
      toast(messageOf(error), { isError: true });
    } finally {
      button.disabled = false;
    }
  }

  #openStop() {
    const { header } = this.header;
    const isQueued = header.state === "queued";
    const name = header.name;
    write(
      find('[data-field="stop-title"]'),
      fill(isQueued ? gettext("Cancel %(name)s?") : gettext("Stop %(name)s?"), { name }),
    );
    write(find('[data-field="stop-text"]'), isQueued ? this.#unqueued(header) : this.#consequence(header));
    write(find('[data-field="stop-keep"]'), isQueued ? gettext("Keep it queued") : gettext("Keep it running"));
    write(find('button[data-action="stop-now"]'), isQueued ? gettext("Cancel run") : gettext("Stop run"));
    write(find('[data-field="stop-error"]'), "");
    find('dialog[data-dialog="stop"]').showModal();
  }

  #unqueued({ attempt }) {
    if (attempt === 1) return gettext("It leaves the queue and does not start. Nothing of it has run yet.");
    return fill(
      gettext(
        "Attempt %(attempt)s leaves the queue and does not start. What the run has done so far stays, and it can be resumed.",
      ),
      { attempt },
    );
  }

  #consequence({ state, step, num_steps: steps }) {
    if (state === "starting") return gettext("It has not begun to train; what it loaded so far is lost.");
    if (this.page.stopNote) return this.page.stopNote;
    return fill(
      gettext(
        "It ends after the step it works on, at step %(step)s of %(steps)s, and saves a checkpoint first, so no finished step is lost. You can resume it from there.",
      ),
      { step: Math.min(step + 1, steps), steps },
    );
  }

  async #cancelRetry(button) {
    button.disabled = true;
    try {
      const { is_changed: isChanged } = await send("POST", `${this.page.api}/stop`);
      toast(
        isChanged
          ? gettext("It stays failed; resume it when you like")
          : gettext("There was nothing to cancel any more"),
      );
    } catch (error) {
      toast(messageOf(error), { isError: true });
    } finally {
      button.disabled = false;
    }
  }

  async #undoStop() {
    try {
      const { run } = await send("DELETE", `${this.page.api}/stop`);
      toast(
        run.state === "queued"
          ? fill(gettext("Queued again as attempt %(number)s"), { number: run.attempt })
          : gettext("The run goes on"),
      );
    } catch (error) {
      toast(messageOf(error), { isError: true });
    }
  }

  async #stop(button) {
    button.disabled = true;
    try {
      const { run } = await send("POST", `${this.page.api}/stop?grace_seconds=${STOP_UNDO_SECONDS + 1}`);
      find('dialog[data-dialog="stop"]').close();
      toast(run.state === "stopped" ? gettext("Canceled") : gettext("Stopping: it saves a checkpoint first"), {
        undo: () => this.#undoStop(),
        seconds: STOP_UNDO_SECONDS,
      });
    } catch (error) {
      write(find('[data-field="stop-error"]'), messageOf(error));
    } finally {
      button.disabled = false;
    }
  }
}
