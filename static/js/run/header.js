/** The head of the page: state, phase, progress, time left, speed, why it waits or failed, and how fresh all this is. */

import * as numbers from "../charts/numbers.js";
import { field, find } from "../dom.js";
import { ago, fill, gettext, grouped, interval, shownState, stateBadge, write } from "../format.js";

const ENDED = ["finished", "failed", "stopped"];

export class Header {
  constructor(page, phases) {
    this.page = page;
    this.phases = phases;
    this.lastMessageAt = Date.now(); // when anything came from the console
    this.isConnected = true;
    this.isGone = false; // deleted while the page is open
    document.addEventListener("pitwall:connection", ({ detail }) => {
      this.isConnected = detail.isConnected;
      if (detail.isConnected) this.lastMessageAt = Date.now();
      this.showLive();
    });
    setInterval(() => {
      if (!document.hidden) {
        this.showLive();
        this.#retry();
      }
    }, 1000);
    document.addEventListener("visibilitychange", () => this.showLive());
  }

  /** Show a header as GET /api/runs/<id> and the websocket give it. */
  show(header) {
    this.header = header;
    this.isGone = false;
    field("gone").hidden = true;
    find(".run-buttons").hidden = false;
    this.lastMessageAt = Date.now();
    const { state } = header;
    const shown = shownState(state, header.is_lost_contact);
    const badge = field("state");
    if (badge.querySelector(".state")?.dataset.state !== shown)
      badge.replaceChildren(stateBadge(state, header.is_lost_contact));
    write(field("name"), header.name);
    document.title = `${header.name} · ${badge.textContent.trim()} · Pitwall`;
    write(field("activity"), this.#activity(header));
    this.#progress(header);
    this.#speed(header);
    this.#notices(header);
    this.showLive();
  }

  /** Say that the run was deleted; what the page has of it stays. */
  gone({ isKnown }) {
    this.isGone = true;
    write(
      field("gone-text"),
      isKnown
        ? gettext("This run was deleted. What this page has read of it stays until you leave the page.")
        : gettext(
            "This run was deleted, or you may not see it any more. What this page has read of it stays until you leave the page.",
          ),
    );
    field("gone").hidden = false;
    find(".run-buttons").hidden = true; // the console refuses all of them of a run in the trash: restore it first
    this.showLive();
  }

  #activity(header) {
    if (!["running", "stopping", "starting"].includes(header.state)) return "";
    const phase = this.phases.get(header.phase)?.label;
    if (header.state === "stopping") return header.activity || gettext("Saving a checkpoint, then it ends");
    if (phase && header.step > 0)
      return fill(gettext("%(phase)s, step %(step)s"), {
        phase,
        step: Math.min(header.step + 1, header.num_steps || header.step + 1),
      });
    return header.activity || phase || (header.state === "starting" ? gettext("Waiting for the runner") : "");
  }

  #progress(header) {
    const meter = find('progress[data-field="meter"]');
    meter.max = Math.max(header.num_steps, 1);
    meter.value = header.step;
    meter.dataset.state = header.state;
    write(field("step"), grouped(header.step));
    write(field("num-steps"), header.num_steps ? grouped(header.num_steps) : "—"); // 0: only its data decide
    write(field("eta"), this.#eta(header));
  }

  #eta(header) {
    if (ENDED.includes(header.state)) {
      const seconds = header.elapsed_seconds;
      return Number.isFinite(seconds) ? fill(gettext("took %(time)s"), { time: numbers.duration(seconds) }) : "";
    }
    if (header.state === "queued") return "";
    const left = header.eta_seconds;
    if (!left) return header.is_lost_contact ? "" : gettext("ETA — (needs 3 steps)");
    const end = new Date(Date.now() + ((left[0] + left[1]) / 2) * 1000);
    return fill(gettext("ETA %(clock)s (%(left)s left)"), { clock: numbers.minute(end), left: interval(left) });
  }

  #speed(header) {
    const values = header.latest_values ?? {};
    const seconds = values["time/step_seconds"];
    const text = ENDED.includes(header.state) ? gettext("last step %(time)s") : gettext("%(time)s/step");
    write(field("step-time"), Number.isFinite(seconds) ? fill(text, { time: numbers.duration(seconds) }) : "");
    const tokens = values["throughput/rollout_tokens_per_second"] ?? values["throughput/update_tokens_per_second"];
    write(field("speed"), Number.isFinite(tokens) ? `${numbers.short(tokens)} tok/s` : "");
  }

  #notices(header) {
    const cause = header.cause ?? {};
    field("cause").hidden = header.state !== "failed";
    if (header.state === "failed") {
      write(field("cause-where"), causePlace(cause));
      write(field("cause-text"), cause.text || gettext("No cause was reported. See the log."));
      write(field("cause-log"), isSaid(cause) ? "" : cause.log_line || "");
    }
    field("wait").hidden = header.state !== "queued";
    if (header.state === "queued") {
      const place = header.queue_position;
      write(field("wait-place"), place ? fill(gettext("Queued, place %(place)s."), { place }) : gettext("Queued."));
      write(field("wait-reason"), header.wait_reason || gettext("It is about to be put on the cluster."));
    }
    this.#retry();
    field("lost").hidden = !header.is_lost_contact || ENDED.includes(header.state);
    if (header.is_lost_contact && header.last_contact_at) {
      write(
        field("lost-since"),
        fill(gettext("Last contact at %(time)s."), { time: numbers.clock(new Date(header.last_contact_at)) }),
      );
    }
  }

  /** Say whether the policy starts a failed run again, and how long that still takes. */
  #retry() {
    const { state, retry } = this.header ?? {};
    const left = retry?.at ? Math.ceil((Date.parse(retry.at) - Date.now()) / 1000) : 0;
    const countdown = left > 0 ? fill(gettext("in %(count)s s"), { count: grouped(left) }) : "";
    let text = "";
    if (state === "failed" && retry?.at) {
      const about = { number: retry.number, most: retry.most };
      const sentence =
        left > 0
          ? gettext("Attempt %(number)s of %(most)s follows in %(left)s s.")
          : gettext("Attempt %(number)s of %(most)s follows once this one is cleaned up after.");
      text = fill(sentence, { ...about, left: grouped(left) });
    } else if (state === "failed" && retry) {
      text = retry.why_not;
    }
    write(field("retry"), text);
    write(field("retry-left"), state === "queued" && retry?.at ? countdown : "");
    const cancel = document.querySelector('button[data-action="cancel-retry"]');
    if (cancel) cancel.hidden = !(state === "failed" && retry?.at);
  }

  /** Something came from the console just now. */
  received() {
    this.lastMessageAt = Date.now();
  }

  /** Say how fresh the page is. */
  showLive() {
    const live = field("live");
    const isOver = this.header && ENDED.includes(this.header.state);
    const isFollowed = this.isConnected && (!this.isGone || isOver);
    live.dataset.live = isFollowed ? "on" : "off";
    if (!isFollowed) {
      write(live, fill(gettext("Offline, last update %(ago)s"), { ago: ago(Date.now() - this.lastMessageAt) }));
    } else if (isOver) {
      const ended = this.header.ended_at ? new Date(this.header.ended_at) : null;
      write(live, ended ? fill(gettext("Ended at %(time)s"), { time: numbers.clock(ended) }) : gettext("Ended"));
      live.title = ended ? numbers.moment(ended) : "";
    } else {
      write(live, fill(gettext("Live, updated %(ago)s"), { ago: ago(Date.now() - this.lastMessageAt) }));
    }
  }
}

/** Return where it failed: "Trainer, policy 1, step 143:". */
export function causePlace(cause) {
  const sides = {
    trainer: gettext("Trainer"),
    cluster: gettext("Cluster"),
    pitwall: gettext("Pitwall"),
    user: gettext("User"),
  };
  const parts = [sides[cause.side] ?? gettext("Unknown side")];
  if (cause.role) parts.push(cause.role === "driver" ? cause.role : `${cause.role} ${cause.rank ?? 0}`);
  if (Number.isInteger(cause.step) && cause.step >= 0) parts.push(fill(gettext("step %(step)s"), { step: cause.step }));
  return `${parts.join(", ")}:`;
}

/** Return true if the log line of a cause says nothing but what its sentence says: "pkg.Error: it was killed". */
function isSaid({ text, log_line: line }) {
  const message = line?.replace(/^[\w.]+: /, "");
  return Boolean(message && text?.includes(message));
}
