/** The Profile tab: captures at the left, with the state of the chosen one; its phases; its files. */

import { send } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { around, field, find } from "../dom.js";
import { bytes, el, fill, gettext, icon, messageOf, ngettext, renew, write } from "../format.js";
import { toast } from "../toast.js";
import { roleName, stepsTitle, toolText, whoText } from "./captures.js";
import { CapturePhases } from "./profile-phases.js";

const action = (/** @type {string} */ name) => document.querySelector(`button[data-action="${name}"]`); // viewers have none
const link = (/** @type {string} */ name) => find(`a[data-action="${name}"]`);
const BADGES = {
  armed: ["queued", "clock"],
  recording: ["running", "player-play"],
  stopping: ["stopping", "square"],
  writing: ["importing", "circle-half-2"],
  importing: ["importing", "circle-half-2"],
  ready: ["ready", "check"],
  failed: ["failed", "x"],
  withdrawn: ["stopped", "arrow-back-up"],
};

/** The labels of states, translated. */
function stateLabel(state) {
  const words = {
    armed: gettext("armed"),
    recording: gettext("recording"),
    stopping: gettext("stopping"),
    writing: gettext("writing"),
    importing: gettext("importing"),
    ready: gettext("ready"),
    failed: gettext("failed"),
    withdrawn: gettext("withdrawn"),
  };
  return words[state] ?? state;
}

function badge(state) {
  const [look, name] = BADGES[state] ?? ["missing", "help-circle"];
  return el("span", { class: "state", "data-state": look, "data-capture-state": state }, icon(name), stateLabel(state));
}

export class ProfileTab {
  constructor({ page, store, feed, phases, query, captures }, ask) {
    this.page = page;
    this.query = query;
    this.captures = captures;
    this.ask = ask;
    this.phases = new CapturePhases({ store, feed, phases });
    this.chosen = query.get("capture") ?? "";
    captures.addEventListener("change", () => this.#draw());
    captures.addEventListener("problem", ({ detail }) => this.#problem(detail));
    ask.addEventListener("asked", ({ detail }) => this.choose(detail));
    find("[data-captures]").addEventListener("click", (event) => this.#click(event));
    find("[data-captures]").addEventListener("keydown", (event) => this.#key(event));
    action("capture-delete")?.addEventListener("click", () => this.#openDelete());
    action("capture-withdraw")?.addEventListener("click", (event) => this.#withdraw(event.currentTarget));
    action("capture-delete-now")?.addEventListener("click", (event) => this.#delete(event.currentTarget));
  }

  show() {
    this.chosen = this.query.get("capture") ?? this.chosen;
    this.isShown = true;
    this.phases.wake();
    if (this.captures.isLoaded) this.#draw();
    else this.captures.load();
  }

  update(header) {
    this.header = header;
    this.captures.update(header);
    if (this.captures.isLoaded) this.#empty();
  }

  reset() {
    this.captures.soon();
  }

  /** Show one capture, and keep it in the address. */
  choose(id) {
    this.chosen = id;
    this.query.set("capture", id);
    this.#draw();
  }

  get capture() {
    return this.captures.of(this.chosen) ?? this.captures.list[0] ?? null;
  }

  #draw() {
    write(find('[data-count="profile"]'), this.captures.total ? String(this.captures.total) : "");
    if (find('[data-panel="profile"]').hidden) return;
    const { list } = this.captures;
    const { capture } = this;
    this.#empty();
    if (!capture) return;
    const size = list.reduce((sum, one) => sum + one.size, 0);
    write(field("captures-note"), size ? `${this.captures.total}, ${bytes(size)}` : String(this.captures.total));
    const held = find("[data-captures]");
    const focused = held.querySelector(":focus")?.dataset.capture;
    renew(
      held,
      list.map((one) => this.#row(one, one === capture)),
    );
    if (focused) held.querySelector(`[data-capture="${focused}"]`)?.focus({ preventScroll: true });
    this.#states(capture);
    this.#head(capture);
    this.#files(capture);
    this.phases.show(capture);
  }

  #empty() {
    const isEmpty = this.captures.list.length === 0;
    find("[data-profile]").hidden = isEmpty;
    const empty = field("profile-empty");
    empty.hidden = !isEmpty;
    if (!isEmpty) return;
    const { state } = this.header;
    const [text, ...verbs] = {
      running: [
        gettext("No step recorded yet. A capture shows what each worker did, call by call."),
        this.ask.button(),
      ],
      queued: [gettext("It has not started. Once it trains, its steps can be recorded here.")],
      starting: [gettext("It is starting. Once it trains, its steps can be recorded here.")],
      stopping: [gettext("Nothing was recorded of this run, and it is about to end.")],
    }[state] ?? [
      gettext("Nothing was recorded of this run. A clone can record steps: choose them in its group Profile."),
      this.#cloneLink(),
    ];
    const signature = `${text}|${verbs.filter(Boolean).length}`;
    if (empty.dataset.shown === signature) return;
    empty.dataset.shown = signature;
    write(empty.firstElementChild, text);
    find(".row-flex", empty).replaceChildren(...verbs.filter(Boolean));
  }

  #cloneLink() {
    return this.page.canEdit
      ? el(
          "a",
          { class: "btn", href: document.querySelector('a[data-action="clone"]')?.href ?? "" },
          icon("copy"),
          gettext("Clone"),
        )
      : null;
  }

  #row(one, isChosen) {
    const time = new Date(one.created_at);
    const error =
      one.state === "failed" ? el("span", { class: "run-capture-problem cut", title: one.problem }, one.problem) : null;
    return el(
      "div",
      {
        class: "run-capture",
        role: "option",
        tabindex: isChosen ? "0" : "-1",
        "aria-selected": String(isChosen),
        "data-capture": one.id,
      },
      el(
        "span",
        { class: "run-capture-name" },
        el("b", {}, stepsTitle(one)),
        " ",
        el(
          "span",
          { class: "faint", title: one.what ? fill(gettext("asked for: %(what)s"), { what: one.what }) : "" },
          toolText(one),
        ),
      ),
      badge(one.state),
      el("span", { class: "faint cut", title: whoText(one) }, whoText(one)),
      el(
        "span",
        { class: "faint num nowrap", title: numbers.moment(time) },
        `${one.size ? `${bytes(one.size)}  ` : ""}${numbers.minute(time)}`,
      ),
      error,
    );
  }

  #click(event) {
    const row = around(event, "[data-capture]");
    if (row) this.choose(row.dataset.capture);
  }

  #key(event) {
    const rows = this.captures.list.map((one) => one.id);
    const at = rows.indexOf(this.capture?.id);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || rows[to] === undefined) return;
    event.preventDefault();
    this.choose(rows[to]);
    find(`[data-capture="${rows[to]}"]`).focus();
  }

  #states(capture) {
    write(field("capture-state-title"), fill(gettext("State of %(steps)s"), { steps: lower(stepsTitle(capture)) }));
    const { states } = this.captures;
    const reached = states.findLastIndex((state) => capture.state_times[state]);
    const broken = ["failed", "withdrawn"].includes(capture.state) ? capture.state : "";
    const now = broken ? Math.max(reached, 0) : states.indexOf(capture.state);
    find("[data-capture-states]").replaceChildren(
      ...states.map((state, place) => {
        const isCurrent = place === now;
        const shown = isCurrent && broken ? broken : state;
        const isDone = place < now || (isCurrent && state === "ready");
        const at = capture.state_times[shown] ? new Date(capture.state_times[shown]) : null;
        const look = shown === broken ? BADGES[broken][1] : isDone ? "check" : isCurrent ? "circle-half-2" : "clock";
        return el(
          "li",
          {
            "data-step": shown === broken ? broken : isDone ? "done" : isCurrent ? "now" : "later",
            "aria-current": isCurrent ? "step" : false,
            title: at ? numbers.moment(at) : false,
          },
          icon(look),
          el("span", {}, stateLabel(shown)),
          el("span", { class: "faint num" }, at ? numbers.clock(at) : ""),
        );
      }),
    );
    const meter = find('progress[data-field="capture-state-meter"]');
    const received = capture.files.reduce((sum, one) => sum + (one.is_ready ? one.size : one.received), 0);
    meter.hidden = capture.state !== "importing";
    meter.max = Math.max(capture.size, 1);
    meter.value = received;
    const text = field("capture-state-text");
    text.classList.toggle("bad", capture.state === "failed");
    write(text, this.#stateText(capture, received));
  }

  #stateText(capture, received) {
    const ready = capture.files.filter((one) => one.is_ready).length;
    const isQueued = this.captures.list.some((one) => one.state === "recording" || one.state === "stopping");
    switch (capture.state) {
      case "failed":
        return capture.problem;
      case "withdrawn":
        return byWhom(
          capture,
          gettext("Withdrawn by %(name)s. Nothing was recorded."),
          gettext("Withdrawn. Nothing was recorded."),
        );
      case "armed":
        return capture.withdrawal
          ? byWhom(
              capture,
              gettext("%(name)s withdraws it: the trainer drops it before its next step, unless it had begun."),
              gettext("It is being withdrawn: the trainer drops it before its next step, unless it had begun."),
            )
          : capture.steps
            ? fill(gettext("It begins with step %(step)s."), { step: capture.steps[0] })
            : isQueued
              ? gettext("It begins when the capture before it has stopped.")
              : gettext("It begins with the next step.");
      case "recording":
        return `${gettext("The workers record. What they do is slower meanwhile.")}${capture.withdrawal ? ` ${gettext("Recording had begun when it was withdrawn, so it goes on.")}` : ""}`;
      case "stopping":
        return gettext("The last step is over; the profilers stop.");
      case "writing":
        return gettext("The profilers write their files on the cluster.");
      case "importing":
        return fill(gettext("%(ready)s of %(all)s files are here, %(done)s of %(size)s."), {
          ready,
          all: capture.files.length,
          done: bytes(received),
          size: bytes(capture.size),
        });
      default:
        return told(capture);
    }
  }

  #head(capture) {
    write(field("capture-title"), `${stepsTitle(capture)}, ${toolText(capture)}`);
    write(
      field("capture-note"),
      [
        capture.author && fill(gettext("by %(name)s"), { name: capture.author }),
        capture.attempt > 1 && fill(gettext("attempt %(n)s"), { n: capture.attempt }),
        capture.id,
      ]
        .filter(Boolean)
        .join(" · "),
    );
    const zip = link("capture-zip");
    zip.hidden = !capture.zip_url;
    if (capture.zip_url) zip.href = capture.zip_url;
    const timeline = link("capture-trace");
    timeline.hidden = !capture.trace_url;
    if (capture.trace_url) timeline.href = capture.trace_url;
    const stacks = link("capture-stacks");
    stacks.hidden = !capture.stacks_url;
    if (capture.stacks_url) stacks.href = capture.stacks_url;
    const trace = capture.files.find((one) => one.perfetto_url);
    const perfetto = link("capture-perfetto");
    perfetto.hidden = !trace;
    if (trace) perfetto.href = trace.perfetto_url;
    const withdraw = action("capture-withdraw");
    if (withdraw) withdraw.hidden = capture.state !== "armed" || Boolean(capture.withdrawal);
    const remove = action("capture-delete");
    if (remove) remove.hidden = !["ready", "failed", "withdrawn"].includes(capture.state);
  }

  #files(capture) {
    const count = capture.files.length;
    write(
      field("capture-files-note"),
      count
        ? fill(ngettext("%(count)s file, %(size)s", "%(count)s files, %(size)s", count), {
            count,
            size: bytes(capture.size),
          })
        : "",
    );
    const rows = capture.files.map((one) => this.#file(one, capture));
    const none = ["failed", "withdrawn"].includes(capture.state)
      ? gettext("It left no file.")
      : gettext("Its files appear here once they are written.");
    renew(find("[data-capture-files]"), rows.length ? rows : [el("li", { class: "faint" }, none)]);
    write(field("capture-how"), count ? howTo(capture) : "");
  }

  #file(one, capture) {
    const where = [one.role && roleName(one.role), one.rank].filter((part) => part !== null && part !== "").join(" ");
    const share = one.size ? Math.floor((100 * one.received) / one.size) : 0;
    return el(
      "li",
      {},
      el(
        "span",
        { class: "mono cut", title: one.sha256 ? `${one.name}\nsha256 ${one.sha256}` : one.name },
        one.name.replace(`${capture.id}-`, ""),
      ),
      el(
        "span",
        { class: "run-capture-file-about" },
        el("span", { class: "faint num" }, [where, one.size ? bytes(one.size) : ""].filter(Boolean).join(", ")),
        el("span", { class: "spacer" }),
        one.perfetto_url
          ? el(
              "a",
              { class: "btn btn-sm", href: one.perfetto_url, title: gettext("Open in Perfetto") },
              icon("timeline"),
              "Perfetto",
            )
          : null,
        one.download_url
          ? el(
              "a",
              {
                class: "btn btn-sm",
                href: one.download_url,
                download: true,
                "aria-label": fill(gettext("Download %(name)s"), { name: one.name }),
              },
              icon("download"),
              gettext("Download"),
            )
          : el(
              "span",
              { class: "state num", "data-state": one.received ? "importing" : "missing" },
              icon(one.received ? "circle-half-2" : "clock"),
              one.received ? fill(gettext("copying %(share)s %"), { share }) : gettext("on the cluster"),
            ),
      ),
      one.timeline === "failed"
        ? el(
            "span",
            { class: "run-capture-problem small" },
            fill(gettext("Not on the timeline: %(why)s"), { why: one.timeline_problem }),
          )
        : null,
      one.tool_version
        ? el(
            "span",
            { class: "faint small cut", title: one.tool_version },
            fill(gettext("made by %(tool)s"), { tool: one.tool_version }),
          )
        : null,
    );
  }

  /** Take back what has not begun. The trainer says whether that was in time, and the page gets its answer as an event. */
  async #withdraw(button) {
    const { capture } = this;
    button.disabled = true;
    try {
      const { state } = await send("DELETE", `${this.page.api}/captures/${capture.id}?state=armed`);
      toast(
        state === "withdrawn" ? gettext("Capture withdrawn; nothing is recorded") : gettext("Withdrawal asked for"),
      );
    } catch (error) {
      toast(messageOf(error), { isError: true });
    } finally {
      button.disabled = false;
    }
    await this.captures.load();
    if (button.hidden) document.querySelector(`[data-capture="${capture.id}"]`)?.focus({ preventScroll: true });
  }

  #openDelete() {
    const { capture } = this;
    const count = capture.files.length;
    write(
      field("capture-delete-title"),
      fill(gettext("Delete %(steps)s, %(tool)s?"), { steps: lower(stepsTitle(capture)), tool: toolText(capture) }),
    );
    write(
      field("capture-delete-text"),
      count
        ? fill(
            ngettext(
              "Its %(count)s file (%(size)s) is deleted permanently.",
              "Its %(count)s files (%(size)s) are deleted permanently.",
              count,
            ),
            { count, size: bytes(capture.size) },
          )
        : gettext("It has no files. Its line is removed."),
    );
    write(field("capture-delete-problem"), "");
    this.doomed = capture.id;
    find('dialog[data-dialog="capture-delete"]').showModal();
  }

  async #delete(button) {
    button.disabled = true;
    try {
      await send("DELETE", `${this.page.api}/captures/${this.doomed}`);
      find('dialog[data-dialog="capture-delete"]').close();
      toast(gettext("Capture deleted"));
      this.chosen = "";
      this.query.set("capture", "");
      await this.captures.load();
    } catch (error) {
      write(field("capture-delete-problem"), messageOf(error));
    } finally {
      button.disabled = false;
    }
  }

  #problem(error) {
    if (this.captures.isLoaded || find('[data-panel="profile"]').hidden) return;
    const empty = field("profile-empty");
    empty.hidden = false;
    empty.dataset.shown = "";
    write(empty.firstElementChild, messageOf(error));
    find(".row-flex", empty).replaceChildren(
      el("button", { class: "btn", type: "button", onclick: () => this.captures.load() }, gettext("Try again")),
    );
  }
}

/** Return the sentence with the name of who withdrew the capture, or the one without where that is not known. */
function byWhom({ withdrawal }, named, nameless) {
  return withdrawal?.by ? fill(named, { name: withdrawal.by }) : nameless;
}

const lower = (text) => text.charAt(0).toLowerCase() + text.slice(1);

/** What recording has cost, and who could not record, as the trainer said. */
function told({ meta }) {
  const {
    start_seconds: start,
    stop_seconds: stop,
    step_seconds: steps,
    neighbor_step_seconds: other,
  } = meta.overhead ?? {};
  const parts = [gettext("All files are here, checksums right.")];
  if (meta.truncated) parts.push(fill(gettext("It was cut short: %(why)s"), { why: meta.truncated }));
  if (Number.isFinite(start) && Number.isFinite(stop))
    parts.push(
      fill(gettext("Starting and stopping held the run up for %(time)s."), { time: numbers.duration(start + stop) }),
    );
  if (Number.isFinite(other) && steps?.length) {
    const mean = steps.reduce((sum, seconds) => sum + seconds, 0) / steps.length;
    parts.push(
      fill(gettext("A recorded step took %(recorded)s, others near it %(other)s."), {
        recorded: numbers.duration(mean),
        other: numbers.duration(other),
      }),
    );
  }
  for (const [worker, why] of Object.entries(meta.missing ?? {}))
    parts.push(fill(gettext("%(worker)s is missing: %(why)s"), { worker, why }));
  return parts.join(" ");
}

function howTo(capture) {
  if (capture.tool === "nsys")
    return gettext(
      "Open reports in Nsight Systems (nsys-ui), of the same version or a newer one; older ones cannot read them.",
    );
  if (capture.tool === "stacks")
    return gettext(
      "A line holds a stack and how often it was seen: tools for flame graphs read these files as they are.",
    );
  const perfetto = gettext("Perfetto opens here, without internet. The same files open in any other Perfetto.");
  if (!capture.tool.startsWith("torch")) return perfetto;
  return `${perfetto} ${gettext("TensorBoard with its plugin torch-tb-profiler shows them too: unpack the zip, then tensorboard --logdir FOLDER.")}`;
}
