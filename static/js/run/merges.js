/** Models that are made of checkpoints on request: what became of each, and the buttons beside its checkpoint. */

import { get, send } from "../api.js";
import { field, find } from "../dom.js";
import { bytes, el, fill, gettext, icon, messageOf, write } from "../format.js";
import { toast } from "../toast.js";

const DIALOG = 'dialog[data-dialog="model-delete"]';
const UNDER_WAY = ["queued", "starting"];

export class Merges {
  /** `onChange` is called after something was asked for or called off. */
  constructor({ page, onChange }) {
    this.page = page;
    this.onChange = onChange;
    this.list = [];
  }

  /** Read them anew, where there are checkpoints to make models of; the list of files is there without them, too. */
  async load(artifacts) {
    if (!artifacts.some((one) => one.type === "checkpoint")) return;
    try {
      this.list = (await get(`${this.page.api}/merges`)).merges;
    } catch {
      // what was known stays, until the next look
    }
  }

  get isMaking() {
    return this.list.some(({ state }) => state === "starting");
  }

  get isWaiting() {
    return this.list.some(({ state }) => state === "queued");
  }

  /** Return the newest merge of a checkpoint. */
  of(checkpoint) {
    return this.list.find((one) => one.attempt === checkpoint.attempt && one.step === checkpoint.step);
  }

  /** Return what became of the newest merge of a checkpoint; null where there is nothing to say. */
  state(checkpoint) {
    const merge = this.of(checkpoint);
    if (!merge || merge.state === "finished") return null;
    const [state, name, text] = {
      queued: ["queued", "clock", gettext("model: waiting for its turn")],
      starting: ["importing", "circle-half-2", gettext("model: is being made")],
      canceled: ["stopped", "square", gettext("model: canceled")],
      failed: ["failed", "x", gettext("model: not made")],
    }[merge.state];
    return el(
      "div",
      { class: "run-merge" },
      el("span", { class: "state", "data-state": state }, icon(name), text),
      merge.problem ? el("p", { class: "faint small" }, merge.problem) : null,
    );
  }

  /** Return what can be done: fetch the `model` of a checkpoint, have it made, or call that off. */
  action(checkpoint, model, url) {
    if (model)
      return el("a", { class: "btn btn-sm", href: url, download: true }, icon("download"), gettext("Download model"));
    if (!this.page.canEdit) return null;
    const merge = this.of(checkpoint);
    return merge && isUnderWay(merge) ? this.#cancel(merge) : this.#make(checkpoint);
  }

  #make({ attempt, step }) {
    const why = this.page.whyNoModel;
    return el(
      "button",
      {
        class: "btn btn-sm",
        type: "button",
        disabled: Boolean(why),
        title: why || gettext("A short job on the cluster makes a Hugging Face folder of it, to try and to download"),
        "aria-label": fill(gettext("Make a model of checkpoint %(step)s"), { step }),
        onclick: (event) =>
          this.#ask(event.currentTarget, "POST", `${this.page.api}/checkpoints/${attempt}/${step}/merge`),
      },
      icon("stack-2"),
      gettext("Make a model"),
    );
  }

  #cancel({ id, step }) {
    return el(
      "button",
      {
        class: "btn btn-sm",
        type: "button",
        "data-merge": String(id),
        "aria-label": fill(gettext("Cancel the model of checkpoint %(step)s"), { step }),
        onclick: (event) => this.#ask(event.currentTarget, "DELETE", `${this.page.api}/merges/${id}`),
      },
      icon("x"),
      gettext("Cancel"),
    );
  }

  /** Offer to delete a model, if it was made on request: what a run leaves at its end stays with the run. */
  removal(model) {
    const merge = this.list.find((one) => one.artifact_id === model.id);
    if (!merge || !this.page.canEdit) return null;
    return el(
      "button",
      {
        class: "btn btn-sm",
        type: "button",
        "data-merge": String(merge.id),
        "aria-label": fill(gettext("Delete the model of checkpoint %(step)s"), merge),
        onclick: () => this.#openDelete(merge, model),
      },
      icon("trash"),
      gettext("Delete model"),
    );
  }

  #openDelete(merge, model) {
    const dialog = find(DIALOG);
    write(field("model-delete-title"), fill(gettext("Delete %(name)s?"), model));
    write(
      field("model-delete-text"),
      fill(
        gettext("It (%(size)s) is deleted permanently, with the prompts that were tried on it. It can be made again."),
        { size: bytes(model.size) },
      ),
    );
    write(field("model-delete-problem"), "");
    find('[data-action="model-delete-now"]', dialog).onclick = (event) => this.#delete(event.currentTarget, merge);
    dialog.showModal();
  }

  async #delete(button, { id }) {
    button.disabled = true;
    try {
      await send("DELETE", `${this.page.api}/merges/${id}`);
      find(DIALOG).close();
      toast(gettext("Model deleted"));
      this.onChange();
    } catch (error) {
      write(field("model-delete-problem"), messageOf(error));
    } finally {
      button.disabled = false;
    }
  }

  async #ask(button, method, url) {
    if (button.dataset.busy) return;
    button.dataset.busy = "1";
    try {
      await send(method, url);
    } catch (error) {
      toast(messageOf(error), { isError: true });
    } finally {
      delete button.dataset.busy;
      this.onChange();
    }
  }
}

const isUnderWay = ({ state }) => UNDER_WAY.includes(state);
