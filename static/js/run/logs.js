/** Logs by role and rank: the newest lines first, older ones as people scroll up, search over all, links to a line. */

import { get } from "../api.js";
import { around, field, find } from "../dom.js";
import { el, fill, gettext, grouped, laneName, messageOf, ngettext, roleName, write } from "../format.js";
import { search } from "./log-search.js";
import { LogView } from "./log-view.js";

const PAGE = 2000;
const AROUND = 400; // lines on each side of one that is jumped to
const MAX_HITS = 2000;
const LIVE_MS = 400;
const button = (/** @type {string} */ name) => find(`button[data-log="${name}"]`);

export class LogTab {
  constructor({ page, store, query }) {
    this.page = page;
    this.store = store;
    this.query = query;
    this.view = new LogView(find("[data-log-view]"), {
      url: page.url,
      onEdge: (side) => this.#more(side),
      onLink: (line) => this.#link(line),
      onScroll: (isAtEnd) => this.#scrolled(isAtEnd),
    });
    this.lane = query.get("process") ?? "";
    /** @type {Map<string, AbortController>} */
    this.asking = new Map();
    this.hits = [];
    this.hitAt = -1;
    this.isFollowing = !query.get("line") && !query.get("at");
    this.select = find("select[data-log-stream]");
    this.select.addEventListener("change", () => this.#choose(this.select.value));
    this.attempt = query.get("attempt") ?? "";
    this.attempts = find("select[data-log-attempt]");
    this.attempts.addEventListener("change", () => this.#chooseAttempt(this.attempts.value));
    this.level = find("select[data-log-level]");
    this.level.value = ["warning", "error"].includes(query.get("level")) ? query.get("level") : "";
    this.level.addEventListener("change", () => this.#filter("level", this.level.value));
    this.times = [find('input[data-log-time="since"]'), find('input[data-log-time="until"]')];
    for (const input of this.times) {
      const name = input.dataset.logTime;
      input.value = query.get(name) ?? "";
      input.addEventListener("change", () => this.#filter(name, input.value));
    }
    this.expression = find("button[data-log-expression]");
    this.expression.setAttribute("aria-pressed", String(query.get("expression") === "1"));
    this.expression.addEventListener("click", () => {
      this.expression.setAttribute("aria-pressed", String(!this.#isExpression));
      this.find();
    });
    this.search = find("input[data-log-search]");
    this.search.value = query.get("find") ?? "";
    this.typing = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.find(), 250);
    });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        this.go(event.shiftKey ? -1 : 1);
      }
    });
    button("next").addEventListener("click", () => this.go(1));
    button("previous").addEventListener("click", () => this.go(-1));
    button("follow").addEventListener("click", () => this.#follow(!this.isFollowing));
    find("#log-findings").addEventListener("click", (event) => {
      const link = around(event, "a[data-log-line]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.#show(link.dataset.logLine ?? "");
    });
    store.on("logs", () => this.#soon());
    this.#setDownload();
  }

  async show() {
    if (this.isLoaded) {
      this.view.redraw();
      this.#soon();
      return;
    }
    this.isLoaded = true;
    this.#follow(this.isFollowing, { isQuiet: true });
    const line = this.query.get("line");
    const at = this.query.get("at") ?? "";
    this.query.set("at", "");
    if (line) await this.#jump(line);
    else if (/^\d{16,19}$/.test(at)) await this.#moment(at);
    else await this.#newest();
    if (this.search.value) this.find();
  }

  reset() {
    if (this.isLoaded && this.isFollowing) this.#newest();
  }

  update(header) {
    if (header.state !== this.state) this.#soon(); // its last lines may have come before this page followed it
    this.state = header.state;
    this.#listAttempts(header.attempts);
  }

  /** Offer the attempts to choose from, where there were several. */
  #listAttempts(attempts) {
    const signature = attempts.map((one) => one.number).join();
    if (this.attempts.dataset.shown === signature) return;
    this.attempts.dataset.shown = signature;
    find("[data-log-attempts]").hidden = attempts.length < 2;
    this.view.hasAttempt = attempts.length > 1;
    const numbers = attempts.map((one) => String(one.number)).reverse();
    this.attempts.replaceChildren(
      el("option", { value: "" }, gettext("All")),
      ...numbers.map((number) => el("option", { value: number }, number)),
    );
    this.attempts.value = numbers.includes(this.attempt) ? this.attempt : "";
    if (this.isLoaded) this.view.redraw();
  }

  #chooseAttempt(attempt) {
    this.attempt = attempt;
    this.query.set("attempt", attempt);
    this.#choose(this.lane);
  }

  /** Show lines of this level or time alone. */
  #filter(name, value) {
    this.query.set(name, value);
    this.#choose(this.lane);
  }

  get #isExpression() {
    return this.expression.getAttribute("aria-pressed") === "true";
  }

  /** Whether the lines are of one process: of a role across its ranks, as of all, each says whose it is. */
  get #isOneProcess() {
    return this.lane.includes("-");
  }

  #isActive() {
    return !find('[data-panel="logs"]').hidden;
  }

  #url(params) {
    const all = new URLSearchParams({ limit: PAGE, ...params });
    const [role, rank] = this.lane.split("-");
    if (role) all.set("role", role);
    if (rank) all.set("rank", rank);
    if (this.attempt) all.set("attempt", this.attempt);
    if (this.level.value) all.set("level", this.level.value);
    for (const input of this.times)
      if (input.value) all.set(input.dataset.logTime ?? "", `${new Date(input.value).getTime()}000000`);
    return `${this.page.api}/logs?${all}`;
  }

  async #newest() {
    await this.#read({}, (answer) => {
      this.hasNewer = false;
      this.hasOlder = answer.has_older;
      this.view.replace(answer.lines, answer.num_older);
      this.view.toEnd();
    });
  }

  /** Ask the console; `take` gets the answer unless something else was asked meanwhile. */
  async #read(params, take) {
    const turn = (this.turn ?? 0) + 1;
    this.turn = turn;
    this.isBusy = true;
    try {
      const answer = await this.#ask(params, { signal: this.#only("reading") });
      if (turn !== this.turn) return;
      this.#lanes(answer.lanes);
      take(answer);
      this.#tell();
    } catch (error) {
      if (turn === this.turn) this.#problem(error);
    } finally {
      if (turn === this.turn) this.isBusy = false;
    }
  }

  /** Give up what is still asked for the same, and return the signal of what is asked now. */
  #only(what) {
    this.asking.get(what)?.abort();
    const asked = new AbortController();
    this.asking.set(what, asked);
    return asked.signal;
  }

  /**
   * @param {Record<string, string | number>} params
   * @param {{ signal?: AbortSignal, onMore?: (found: number) => void }} [options]
   */
  #ask(params, { signal, onMore } = {}) {
    const limit = Number(params.limit ?? PAGE);
    return search((each) => get(this.#url(each), { signal }), { params, limit, onMore });
  }

  #more(side) {
    if (this.isBusy || !this.view.lines.length) return;
    if (side === "top" && this.hasOlder) {
      this.#read({ before: this.view.lines[0].cursor }, (answer) => {
        this.hasOlder = answer.has_older;
        this.view.prepend(answer.lines, answer.num_older);
      });
    } else if (side === "bottom" && this.hasNewer) {
      this.#newer();
    }
  }

  #newer() {
    return this.#read({ after: this.view.lines.at(-1).cursor }, (answer) => {
      this.hasNewer = answer.has_newer;
      this.view.append(answer.lines);
      if (this.isFollowing) this.view.toEnd();
      if (this.hasNewer && this.isFollowing) this.#soon();
    });
  }

  /** Lines came: read them soon, if somebody looks. */
  #soon() {
    if (!this.isLoaded || !this.#isActive()) return;
    this.waiting ||= setTimeout(() => {
      this.waiting = 0;
      if (this.isBusy) this.#soon();
      else if (!this.view.lines.length) this.#newest();
      else if (!this.hasNewer || this.isFollowing) this.#newer();
    }, LIVE_MS);
  }

  #choose(lane) {
    this.lane = lane;
    this.query.set("process", lane);
    this.query.set("line", "");
    this.view.target = "";
    this.#setDownload();
    this.#follow(true, { isQuiet: true });
    this.#newest().then(() => {
      if (this.search.value) this.find();
    });
  }

  #setDownload() {
    const [role, rank] = this.lane.split("-");
    const asked = new URLSearchParams({
      ...(role && { role }),
      ...(rank && { rank }),
      ...(this.attempt && { attempt: this.attempt }),
    });
    find('a[data-log="download"]').href = `${this.page.url}/log.txt${asked.size ? `?${asked}` : ""}`;
  }

  #lanes(lanes) {
    const signature = JSON.stringify(lanes);
    if (this.select.dataset.shown === signature) return;
    this.select.dataset.shown = signature;
    const roles = lanes.map(({ role }) => role);
    const several = [...new Set(roles)].filter((role) => roles.indexOf(role) !== roles.lastIndexOf(role));
    this.select.replaceChildren(
      el("option", { value: "" }, gettext("All processes")),
      ...several.map((role) =>
        el("option", { value: role }, fill(gettext("%(role)s, all ranks"), { role: roleName(role) })),
      ),
      ...lanes.map((lane) => el("option", { value: `${lane.role}-${lane.rank}` }, laneName(lane))),
    );
    this.select.value = this.lane;
    this.view.hasSource = !this.#isOneProcess;
  }

  #tell() {
    this.view.hasSource = !this.#isOneProcess;
    const { lines } = this.view;
    const more = this.hasOlder || this.hasNewer;
    const text = more
      ? gettext("%(n)s lines loaded, more above or below")
      : ngettext("%(n)s line", "%(n)s lines", lines.length);
    write(field("log-count"), lines.length ? fill(text, { n: grouped(lines.length) }) : "");
    const empty = field("log-empty");
    empty.hidden = lines.length > 0;
    find("[data-log-view]").hidden = lines.length === 0;
    const waits = this.state === "queued" || this.state === "starting";
    empty.replaceChildren(
      el(
        "p",
        {},
        waits
          ? gettext("It has not started. Lines appear here as the processes write them.")
          : gettext("No line was written."),
      ),
    );
  }

  #problem(error) {
    const empty = field("log-empty");
    empty.hidden = false;
    empty.replaceChildren(
      el("p", {}, messageOf(error)),
      el("button", { class: "btn", type: "button", onclick: () => this.#newest() }, gettext("Try again")),
    );
  }

  #follow(isFollowing, { isQuiet = false } = {}) {
    this.isFollowing = isFollowing;
    this.view.isKept = isFollowing;
    button("follow").setAttribute("aria-pressed", String(isFollowing));
    if (!isFollowing || isQuiet) return;
    this.query.set("line", "");
    if (this.hasNewer) this.#newest();
    else this.view.toEnd();
  }

  #scrolled(isAtEnd) {
    const isNewest = isAtEnd && !this.hasNewer;
    if (isNewest !== this.isFollowing) this.#follow(isNewest, { isQuiet: true });
  }

  #link(line) {
    this.query.set("line", line.cursor);
    this.query.write();
    this.view.target = line.cursor;
    this.#follow(false);
    this.view.redraw();
  }

  /** Show a line among all others of its time, whatever was chosen before. */
  async #show(cursor) {
    this.lane = this.attempt = this.select.value = this.attempts.value = this.level.value = "";
    for (const input of this.times) input.value = "";
    for (const name of ["process", "attempt", "level", "since", "until"]) this.query.set(name, "");
    this.#setDownload();
    this.#follow(false);
    this.query.set("line", cursor);
    this.query.write();
    this.view.replace([], 0);
    await this.#jump(cursor);
  }

  /** Show the lines around a cursor. */
  async #jump(cursor, { isHit = false } = {}) {
    this.view[isHit ? "hit" : "target"] = cursor;
    if (this.view.reveal(cursor)) return;
    const number = cursor.split(".");
    const next = `${number[0]}.${Number(number[1]) + 1}`;
    const older = await this.#ask({ before: next, limit: AROUND }).catch((error) => this.#problem(error));
    if (!older) return;
    await this.#read({ after: older.lines.at(-1)?.cursor ?? cursor, limit: AROUND }, (newer) => {
      this.hasOlder = older.has_older;
      this.hasNewer = newer.has_newer;
      this.view.replace([...older.lines, ...newer.lines], older.num_older);
      this.view.reveal(cursor);
    });
  }

  /** Go to the first line of a moment (Unix ns) and mark it; to the newest one where none is so late. */
  async #moment(at) {
    const [line] = (await this.#ask({ at, limit: 1 }).catch(() => ({ lines: [] }))).lines;
    if (!line) {
      await this.#newest();
      return;
    }
    this.query.set("line", line.cursor);
    await this.#jump(line.cursor);
  }

  /** Look for the text in all lines of the chosen process. */
  async find() {
    const needle = this.search.value;
    this.query.set("find", needle);
    this.query.set("expression", this.#isExpression ? "1" : "");
    this.view.needle = needle;
    this.view.isExpression = this.#isExpression;
    this.view.hit = "";
    this.view.redraw();
    this.hits = [];
    this.hitAt = -1;
    const signal = this.#only("finding");
    this.search.setAttribute("aria-invalid", "false");
    if (needle) {
      const params = { q: needle, limit: String(MAX_HITS), ...(this.#isExpression && { is_expression: "true" }) };
      const onMore = (found) =>
        write(field("log-hits"), fill(gettext("%(n)s found, searching on…"), { n: grouped(found) }));
      try {
        const answer = await this.#ask(params, { signal, onMore });
        this.hits = answer.lines;
        this.hasMoreHits = answer.has_older;
      } catch (error) {
        if (signal.aborted) return;
        this.search.setAttribute("aria-invalid", "true");
        write(field("log-hits"), messageOf(error));
        button("next").disabled = button("previous").disabled = true;
        return;
      }
    }
    this.#tellHits();
    if (this.hits.length) this.go(-1);
  }

  /** Go to the next (1) or previous (-1) match; from nowhere, to the newest. */
  async go(by) {
    if (!this.hits.length) return;
    const from = this.hitAt < 0 ? (by < 0 ? 0 : -1) : this.hitAt;
    this.hitAt = (from + by + this.hits.length) % this.hits.length;
    this.#follow(false);
    this.#tellHits();
    await this.#jump(this.hits[this.hitAt].cursor, { isHit: true });
  }

  #tellHits() {
    const count = this.hits.length;
    const all = this.hasMoreHits && count ? `${grouped(count)}+` : grouped(count);
    let text = "";
    if (this.search.value)
      text = count
        ? fill(gettext("%(at)s of %(all)s"), { at: grouped(Math.max(this.hitAt, 0) + 1), all })
        : gettext("no match");
    write(field("log-hits"), text);
    button("next").disabled = button("previous").disabled = !count;
  }
}
