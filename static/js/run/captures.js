/** The captures of a run as the console knows them: read by HTTP, moved on by frames, so that each change shows at once. */

import { get } from "../api.js";
import { fill, gettext, ngettext } from "../format.js";

const SOON_MS = 120;
const ENDED = ["finished", "failed", "stopped"];

export class Captures extends EventTarget {
  constructor({ page, store }) {
    super();
    this.page = page;
    this.store = store;
    this.list = [];
    this.total = 0;
    this.states = []; // in order; a capture that has failed or was withdrawn is in none of them
    this.workers = [];
    this.install = "";
    this.costs = [];
    this.freeBytes = Infinity;
    this.clusterFreeBytes = null;
    this.isLoaded = false;
    store.on("captures", (items) => this.#apply(items));
  }

  /** Read all again; the last call wins. Listeners of "change" and "problem" are called. */
  async load() {
    clearTimeout(this.waiting);
    this.waiting = 0;
    const turn = (this.turn ?? 0) + 1;
    this.turn = turn;
    try {
      const answer = await get(`${this.page.api}/captures`);
      if (turn !== this.turn) return;
      this.list = answer.captures;
      this.total = answer.total;
      this.states = answer.states;
      this.workers = answer.workers;
      this.install = answer.install_nsys;
      this.costs = answer.costs;
      this.freeBytes = answer.free_bytes;
      this.clusterFreeBytes = answer.cluster_free_bytes;
      this.isLoaded = true;
      this.dispatchEvent(new Event("change"));
    } catch (error) {
      this.dispatchEvent(new CustomEvent("problem", { detail: error }));
    }
  }

  soon() {
    this.waiting ||= setTimeout(() => this.load(), SOON_MS);
  }

  /** The run's header changed: people may have asked or withdrawn, files may have arrived, its end may have ended captures. */
  update(header) {
    const isAsked = this.changes !== undefined && this.changes !== header.capture_changes;
    if (this.changes === undefined && header.capture_changes && header.state === "running") this.soon(); // one may record
    this.changes = header.capture_changes;
    const isEnded = ENDED.includes(header.state);
    const hasEnded = isEnded && this.isEnded === false;
    this.isEnded = isEnded;
    const isImporting = this.list.some((one) => one.state === "importing");
    if (isAsked || (this.isLoaded && (hasEnded || isImporting))) this.soon();
  }

  of(id) {
    return this.list.find((one) => one.id === id) ?? null;
  }

  /** What frames say, told at once; times, files and what only the console knows follow by HTTP. */
  #apply(items) {
    for (const { capture, state, text } of items) {
      const known = this.of(capture);
      const reached = known ? this.states.indexOf(known.state) : -1;
      if (reached < 0 || reached === this.states.length - 1) continue; // unknown, or at its end
      if (state === "withdrawn") known.state = state;
      else if (state === "failed") Object.assign(known, { state, problem: text });
      else if (this.states.indexOf(state) > reached) known.state = state;
    }
    this.dispatchEvent(new Event("change"));
    this.soon();
  }
}

/** Return true if steps were recorded: not of one that still waits for its steps, or never came to them. */
export function hasBegun({ state, state_times: times }) {
  return Boolean(times.recording) || !["armed", "failed", "withdrawn"].includes(state);
}

/** Return what a capture is of: "Steps 308–309", "Step 100", "Next 2 steps". */
export function stepsTitle(capture) {
  const count = capture.num_steps;
  if (!capture.steps && capture.seconds) return fill(gettext("Up to %(seconds)s s"), { seconds: capture.seconds });
  if (!capture.steps) return count === 1 ? gettext("Next step") : fill(gettext("Next %(count)s steps"), { count });
  const [first, last] = capture.steps;
  return first === last
    ? fill(gettext("Step %(step)s"), { step: first })
    : fill(gettext("Steps %(first)s–%(last)s"), { first, last });
}

/** Return what the steps to come are called on a button. */
export function nextText(count) {
  return count === 1 ? gettext("Profile next step") : fill(gettext("Profile next %(count)s steps"), { count });
}

/** Return with which tool; of a capture asked for at launch none is selected before its workers are there. */
export function toolText({ tool }) {
  return tool || gettext("tool not selected yet");
}

/** Return the name of a role as people write it. */
export function roleName(role) {
  return role === "vllm" ? "vLLM" : role;
}

/** Return how people call several workers: "policy 0–1, vLLM 0". */
export function workersText(workers) {
  const roles = [...new Set(workers.map(({ role }) => role))];
  return roles
    .map((role) => `${roleName(role)} ${ranges(workers.filter((one) => one.role === role).map(({ rank }) => rank))}`)
    .join(", ");
}

/** Return on whom: "policy 0–1, vLLM 0", "all workers". */
export function whoText({ roles, ranks }) {
  const names = roles.map(roleName).join(", ");
  const some = ranks.length
    ? fill(ngettext("rank %(ranks)s", "ranks %(ranks)s", ranks.length), { ranks: ranges(ranks) })
    : "";
  if (!names && !some) return gettext("all workers");
  if (!names) return fill(gettext("all roles, %(ranks)s"), { ranks: some });
  return some ? `${names}, ${some}` : names;
}

function ranges(ranks) {
  const parts = [];
  for (const rank of [...ranks].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === rank - 1) last[1] = rank;
    else parts.push([rank, rank]);
  }
  return parts.map(([low, high]) => (low === high ? low : `${low}–${high}`)).join(", ");
}
