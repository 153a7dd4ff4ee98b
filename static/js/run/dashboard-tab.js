/** Dashboards of a run's page: which there are, the one that is shown, and what becomes of changes to it. */

import { get, send } from "../api.js";
import { controls, field, find } from "../dom.js";
import { el, fill, gettext, messageOf, write } from "../format.js";
import { toast } from "../toast.js";
import { firstOf, isSame, withChart } from "./dashboard-charts.js";
import { DashboardGrid } from "./dashboard-grid.js";
import { metricInfo } from "./metric-plot.js";

const SUGGESTIONS = 50;

/** @import { BoardChart } from "./dashboard-charts.js" */
/** @typedef {{ id: string, name: string, charts: BoardChart[], is_shared: boolean, is_default: boolean, owner: string | null, may_change: boolean }} Board */

export class DashboardTab {
  constructor({ page, store, feed, view, query, large }) {
    this.page = page;
    this.store = store;
    this.feed = feed;
    this.query = query;
    this.large = large;
    this.api = `/api/projects/${page.project}/dashboards`;
    /** @type {Board[]} */
    this.boards = [];
    /** @type {Board | null} */
    this.board = null;
    /** @type {BoardChart[]} as shown, with what is not saved yet */
    this.charts = [];
    this.isShown = false;
    /** @type {Promise<void> | null} */
    this.loading = null;
    this.grid = new DashboardGrid(find("[data-board]"), {
      page,
      store,
      view,
      large,
      onChange: (charts) => this.#arrange(charts),
      onSay: (text) => write(field("board-said"), text),
    });
    this.dialog = find('dialog[data-dialog="board"]');
    this.form = find("form", this.dialog);
    this.adding = find("form[data-board-add]");
    store.on("names", () => {
      if (!this.isShown) return;
      this.grid.fill();
      large.restore((name) => large.openMetric(name));
    });
    this.#listen();
  }

  /** Show the tab; the list is read the first time. */
  async show() {
    this.isShown = true;
    this.loading ??= this.#load();
    await this.loading;
    if (!this.isShown) return;
    this.#show();
    this.large.restore((name) => this.large.openMetric(name));
  }

  /** Let the charts of a tab that is left go. */
  hide() {
    this.isShown = false;
    this.grid.clear();
    this.feed.hold("dashboard", []);
  }

  /** Put a metric onto the dashboard that the tab would show, and keep it so. */
  async add(metric) {
    this.loading ??= this.#load();
    await this.loading;
    const link = { url: `${this.page.url}/dashboard`, text: gettext("Open") };
    const board = this.board;
    if (!board?.may_change) {
      toast(gettext("There is no dashboard that you may change. Make one first."), { link });
      return;
    }
    const before = this.charts;
    this.charts = withChart(before, metric);
    const words = { title: metricInfo(this.page, metric).label, name: board.name };
    if (this.charts === before) {
      toast(fill(gettext("%(title)s is on “%(name)s” already"), words), { link });
      return;
    }
    if (await this.#save()) toast(fill(gettext("%(title)s is on “%(name)s”"), words), { link });
    else this.charts = before;
  }

  #listen() {
    const on = (/** @type {string} */ name, /** @type {() => void} */ act) =>
      find(`button[data-board-${name}]`).addEventListener("click", () => {
        for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
        act();
      });
    find("select[data-board-choice]").addEventListener("change", ({ target }) =>
      this.#choose(/** @type {HTMLSelectElement} */ (target).value),
    );
    on("new", () => this.#ask("new"));
    on("copy", () => this.#ask("copy"));
    on("rename", () => this.#ask("rename"));
    on("delete", () => this.#delete());
    on("share", () => this.#change({ is_shared: !this.board?.is_shared }));
    on("default", () => this.#change({ is_default: !this.board?.is_default }));
    on("link", () => this.#copyAddress());
    on("save", () => this.#save());
    on("discard", () => this.#arrange(this.board?.charts ?? []));
    find("button[data-board-first]").addEventListener("click", () => this.#ask("new"));
    this.form.addEventListener("submit", (event) => this.#submit(event));
    this.adding.addEventListener("submit", (event) => this.#addTyped(event));
    find("input", this.adding).addEventListener("input", () => this.#suggest());
    find("input", this.adding).addEventListener("focus", () => this.#suggest());
  }

  async #load() {
    try {
      const { dashboards } = await get(this.api);
      this.boards = dashboards;
      const asked = this.query.get("board");
      if (asked && !this.boards.some(({ id }) => id === asked)) await this.#loadForeign(asked);
      this.#take(firstOf(this.boards, asked));
      write(field("board-problem"), "");
    } catch (error) {
      this.loading = null; // the next visit tries again
      write(field("board-problem"), messageOf(error));
    }
  }

  /** Read the dashboard of another person whose address was given. */
  async #loadForeign(id) {
    try {
      this.boards.push(await get(`${this.api}/${encodeURIComponent(id)}`));
    } catch (error) {
      toast(fill(gettext("The dashboard of this address: %(problem)s"), { problem: messageOf(error) }), {
        isError: true,
      });
    }
  }

  #take(/** @type {Board | null} */ board) {
    this.board = board;
    this.charts = board?.charts ?? [];
  }

  #choose(id) {
    const { board, charts } = this;
    const isDropped = Boolean(board) && this.isChanged;
    this.#take(this.boards.find((one) => one.id === id) ?? null);
    this.#show();
    if (!isDropped) return;
    toast(fill(gettext("What was not saved of “%(name)s” is dropped"), { name: board?.name }), {
      undo: () => {
        this.#take(board);
        this.#arrange(charts);
      },
    });
  }

  get isChanged() {
    return !isSame(this.charts, this.board?.charts ?? []);
  }

  #arrange(/** @type {BoardChart[]} */ charts) {
    this.charts = charts;
    this.#show();
  }

  #show() {
    const { board, charts } = this;
    this.#options();
    this.query.set("board", board?.id ?? "");
    const may = board?.may_change ?? false;
    for (const node of document.querySelectorAll("[data-board-needs]")) {
      const needs = node.dataset.boardNeeds;
      node.hidden = !board || (needs === "change" && !may) || (needs === "editor" && !(may && this.page.canEdit));
    }
    field("board-none").hidden = board !== null;
    field("board-empty").hidden = !board || charts.length > 0;
    field("board-owner").hidden = !board || may;
    const foreign = board?.owner ? gettext("of %(owner)s; save a copy to change it") : gettext("editors change it");
    write(field("board-owner"), board && !may ? fill(foreign, { owner: board.owner }) : "");
    write(
      find('[data-board-share] [data-part="text"]'),
      board?.is_shared ? gettext("Keep for me alone") : gettext("Share with the project"),
    );
    write(
      find('[data-board-default] [data-part="text"]'),
      board?.is_default ? gettext("Open with it no longer") : gettext("Open the tab with it"),
    );
    for (const part of document.querySelectorAll("[data-board-unsaved]")) part.hidden = !may || !this.isChanged;
    this.grid.show(charts, may);
    this.feed.hold("dashboard", this.isShown ? charts.map(({ metric }) => metric) : []);
  }

  #options() {
    const choice = find("select[data-board-choice]");
    const groups = [
      { label: gettext("Of the project"), boards: this.boards.filter((one) => one.is_shared) },
      { label: gettext("Yours"), boards: this.boards.filter((one) => !one.is_shared && one.may_change) },
      { label: gettext("Of others"), boards: this.boards.filter((one) => !one.is_shared && !one.may_change) },
    ];
    choice.replaceChildren(
      ...groups
        .filter(({ boards }) => boards.length)
        .map(({ label, boards }) =>
          el(
            "optgroup",
            { label },
            ...boards.map(({ id, name, is_default: isDefault }) =>
              el("option", { value: id }, isDefault ? fill(gettext("%(name)s (default)"), { name }) : name),
            ),
          ),
        ),
    );
    choice.value = this.board?.id ?? "";
  }

  /** Ask for a name: of a new one, of a copy, or another one for the shown one. */
  #ask(/** @type {"new" | "copy" | "rename"} */ what) {
    const titles = {
      new: gettext("New dashboard"),
      copy: gettext("Save a copy"),
      rename: gettext("Rename the dashboard"),
    };
    this.asked = what;
    write(find("h2", this.dialog), titles[what]);
    write(find("button[data-board-ok]", this.dialog), what === "rename" ? gettext("Rename") : gettext("Make it"));
    const { name, begin } = controls(this.form);
    name.value = what === "new" ? "" : (this.board?.name ?? "");
    find("[data-board-begin]", this.form).hidden = what !== "new";
    begin.value = "overview";
    for (const part of this.form.querySelectorAll("[data-board-whose]")) part.hidden = what === "rename";
    write(field("board-refusal"), "");
    this.dialog.showModal();
    name.select();
  }

  async #submit(event) {
    event.preventDefault();
    const { name, begin } = controls(this.form);
    const shared = this.form.querySelector('input[name="is_shared"]'); // viewers have none
    try {
      if (this.asked === "rename") this.#put(await send("PATCH", this.#address, { name: name.value }));
      else {
        const charts = this.asked === "copy" ? this.charts : begin.value === "overview" ? this.#ofOverview() : [];
        const body = { name: name.value, charts, is_shared: shared?.checked ?? false };
        const made = await send("POST", this.api, body);
        this.boards.push(made);
        this.#take(made);
      }
      this.dialog.close();
      this.#show();
    } catch (error) {
      write(field("board-refusal"), messageOf(error));
    }
  }

  /** The charts of the overview, one for each metric that stands alone. */
  #ofOverview() {
    const names = this.page.charts
      .filter((plan) => !plan.is_stacked)
      .flatMap((plan) => plan.lines.map(({ name }) => name));
    return [...new Set(names)].map((metric) => ({ metric, width: 1, height: 1 }));
  }

  get #address() {
    return `${this.api}/${this.board?.id}`;
  }

  /** Take a dashboard as the console has it now in the place of what was known; what is not saved stays. */
  #put(/** @type {Board} */ next) {
    const charts = this.isChanged ? this.charts : next.charts;
    this.boards = this.boards.map((one) => {
      if (one.id === next.id) return next;
      const isOther = next.is_default && one.is_shared === next.is_shared;
      return isOther ? { ...one, is_default: false } : one;
    });
    this.board = next;
    this.charts = charts;
  }

  async #change(changes) {
    try {
      this.#put(await send("PATCH", this.#address, changes));
      this.#show();
    } catch (error) {
      toast(messageOf(error), { isError: true });
    }
  }

  /** Keep the charts as they are shown; returns whether that went well. */
  async #save() {
    try {
      this.#put(await send("PATCH", this.#address, { charts: this.charts }));
    } catch (error) {
      toast(messageOf(error), { isError: true });
      return false;
    }
    if (this.isShown) {
      this.#show();
      write(field("board-said"), gettext("Saved"));
    }
    return true;
  }

  async #delete() {
    const { board } = this;
    if (!board) return;
    try {
      await send("DELETE", this.#address);
    } catch (error) {
      toast(messageOf(error), { isError: true });
      return;
    }
    this.boards = this.boards.filter(({ id }) => id !== board.id);
    this.#take(firstOf(this.boards, null));
    this.#show();
    const { name, charts, is_shared } = board;
    toast(fill(gettext("“%(name)s” is deleted"), { name }), {
      undo: async () => {
        const made = await send("POST", this.api, { name, charts, is_shared });
        this.boards.push(made);
        this.#take(made);
        this.#show();
      },
    });
  }

  async #copyAddress() {
    const address = `${location.origin}${this.page.url}/dashboard?board=${this.board?.id}`;
    try {
      await navigator.clipboard.writeText(address);
      toast(gettext("The address is copied; members of the project can open it"));
    } catch {
      toast(fill(gettext("The browser lets nothing be copied here. The address: %(address)s"), { address }));
    }
  }

  #addTyped(event) {
    event.preventDefault();
    const input = find("input", this.adding);
    const typed = input.value.trim();
    const known = [...this.store.names.keys()].find(
      (name) => name === typed || metricInfo(this.page, name).label === typed,
    );
    if (!typed) return;
    if (!known) {
      write(
        field("board-said"),
        fill(gettext("This run reports no metric “%(name)s”. Choose one of the list."), { name: typed }),
      );
      return;
    }
    input.value = "";
    this.#arrange(withChart(this.charts, known));
    write(
      field("board-said"),
      fill(gettext("%(title)s is the last chart"), { title: metricInfo(this.page, known).label }),
    );
  }

  /** Offer metrics that the typed text is a part of, as many as anybody reads. */
  #suggest() {
    const needle = find("input", this.adding).value.trim().toLowerCase();
    const on = new Set(this.charts.map(({ metric }) => metric));
    const fits = (/** @type {string} */ name) =>
      !on.has(name) && `${name} ${metricInfo(this.page, name).label}`.toLowerCase().includes(needle);
    const names = [...this.store.names.keys()].filter(fits).slice(0, SUGGESTIONS);
    find("#board-metrics").replaceChildren(
      ...names.map((name) => el("option", { value: name }, metricInfo(this.page, name).label)),
    );
  }
}
