/** The page of one trace: a timeline of the run's phases and of every file, with what is chosen and selected beside it. */

import { send } from "./api.js";
import { around, field, find, jsonOf } from "./dom.js";
import { el, fill, gettext, laneName, messageOf, write } from "./format.js";
import { onKeys } from "./keys.js";
import { Query } from "./query.js";
import { Clock } from "./timeline/clock.js";
import { toast } from "./toast.js";
import { Bookmarks } from "./trace/bookmarks.js";
import { Chain } from "./trace/chain.js";
import { Counters } from "./trace/counters.js";
import { Details, goTo } from "./trace/details.js";
import { Dock } from "./trace/dock.js";
import { layerGroups, phaseGroup } from "./trace/lanes.js";
import { Layers } from "./trace/layers.js";
import { Layout } from "./trace/layout.js";
import { LaneMenu } from "./trace/menu.js";
import { CATEGORIES, categoryToken, categoryWord, Palette } from "./trace/palette.js";
import { CriticalPath } from "./trace/path.js";
import { Pins } from "./trace/pins.js";
import { Search } from "./trace/search.js";
import { Selection } from "./trace/selection.js";
import { Strip } from "./trace/strip.js";
import { Loader } from "./trace/tiles.js";
import { axisText, emptyBetween, span } from "./trace/times.js";
import { View } from "./trace/view.js";

const page = jsonOf("trace-page");
const phases = new Map(page.phases.map((phase) => [phase.key, phase]));
const query = new Query();

function deletion() {
  const dialog = document.querySelector('dialog[data-dialog="delete"]');
  if (!dialog) return;
  find('[data-action="delete"]').addEventListener("click", () => dialog.showModal());
  find("[data-close]", dialog).addEventListener("click", () => dialog.close());
  find('[data-action="delete-now"]').addEventListener("click", async () => {
    try {
      await send("DELETE", page.api);
      location.href = page.list;
    } catch (error) {
      find("[data-delete-problem]").textContent = messageOf(error);
    }
  });
}

/** The list of files is drawn by the server, again and again while something is still to come. */
function files() {
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (!detail.target.matches("[data-files]") || detail.xhr.status !== 200) return;
    const now = new DOMParser().parseFromString(detail.serverResponse, "text/html").querySelector("[data-files]");
    // what has not changed stays: who is about to press a button still finds it there
    if (
      now?.innerHTML === detail.target.innerHTML &&
      now.getAttribute("hx-trigger") === detail.target.getAttribute("hx-trigger")
    )
      detail.shouldSwap = false;
  });
  document.addEventListener("htmx:responseError", ({ detail }) => {
    if (detail.target.matches("[data-files]") && detail.xhr.status === 404) detail.target.remove(); // the trace was deleted
  });
  document.addEventListener("click", async (event) => {
    const button = around(event, "[data-files] button[data-again]");
    if (!button) return;
    button.disabled = true;
    try {
      await send("POST", `${page.api}/layers/${button.dataset.again}/import`);
      htmx.trigger(find("[data-files]"), "again");
    } catch (error) {
      toast(messageOf(error), { isError: true });
      button.disabled = false;
    }
  });
}

/** @import { Group } from "./trace/layout.js" */

/** The timeline and all that hangs on it. */
class TracePage {
  constructor() {
    this.palette = new Palette(phases);
    this.layout = new Layout();
    this.loader = new Loader(() => {
      this.strip?.loaded();
      this.view.draw();
    });
    this.view = new View({
      canvas: find('canvas[data-canvas="lanes"]'),
      scroll: find("[data-scroll]"),
      space: find("[data-space]"),
      palette: this.palette,
      layout: this.layout,
      loader: this.loader,
    });
    this.view.canvas.dataset.step = gettext("step");
    const strip = find('canvas[data-canvas="strip"]');
    strip.dataset.all = gettext("all");
    this.strip = new Strip(strip, this.view, this.palette, this.loader);
    this.clock = new Clock(page.trace.begin ?? String(BigInt(new Date(page.trace.created_at).getTime()) * 1000000n));
    this.layers = new Layers({ page });
    /** @type {{ phases: Group | null, layers: Map<number, Group[]> }} */
    this.groups = { phases: null, layers: new Map() };
    /** @type {View["steps"]} */
    this.layerSteps = [];
    /** @type {View["steps"]} */
    this.phaseSteps = [];
    for (const name of ["fold", "hide", "deep"]) {
      const set = { fold: this.layout.folded, hide: this.layout.hidden, deep: this.layout.deep }[name];
      for (const key of (query.get(name) ?? "").split(",").filter((one) => one && one !== "none")) set.add(key);
    }
    this.layout.isRestored = query.get("fold") !== null;
    this.layout.order = (query.get("order") ?? "").split(",").filter(Boolean);
    this.view.isByStep = query.get("axis") === "step";
    const context = { page, view: this.view, clock: this.clock, layers: this.layers, query };
    this.selection = new Selection(context);
    this.details = new Details(context);
    this.chain = new Chain(context);
    this.search = new Search(context);
    this.counters = new Counters(context);
    this.dock = new Dock(context);
    this.bookmarks = new Bookmarks(context);
    this.path = new CriticalPath({ ...context, onChange: () => this.#place() });
    this.pins = new Pins({ layout: this.layout, query, project: page.trace.project });
    this.menu = new LaneMenu({ view: this.view, counters: this.counters, onChange: () => this.#folds() });
    this.layers.addEventListener("phases", ({ detail }) => this.#phases(detail));
    this.layers.addEventListener("layer", ({ detail }) => this.#layer(detail));
    this.layers.addEventListener("state", () => this.#empty());
    this.layers.addEventListener("problem", ({ detail }) => write(field("note"), detail.message));
    this.loader.onProblem = (isBad, isFinal) => {
      const text = isFinal
        ? gettext("Part of the timeline could not be read. Reload the page.")
        : gettext("Part of the timeline could not be read. It is tried again.");
      write(field("note"), isBad ? text : "");
    };
    this.#tools();
    this.#listen();
  }

  async start() {
    await this.layers.start();
    this.isStarted = true;
    this.#empty();
    this.#restore();
    this.selection.soon();
    this.dock.soon();
    this.bookmarks.read();
  }

  #phases(answer) {
    if (!page.trace.begin && !this.groups.phases && !this.groups.layers.size && answer.lanes.length) {
      // biome-ignore lint/complexity/useMathMinMax: Math.min takes no BigInt
      this.clock.origin = answer.lanes.map(({ start }) => BigInt(start[0])).reduce((a, b) => (a < b ? a : b));
    }
    const { group, steps } = phaseGroup(answer, this.clock);
    this.groups.phases = group;
    this.phaseSteps = steps;
    this.#place();
  }

  #layer(detail) {
    this.groups.layers.set(detail.id, layerGroups(detail, this.clock, page.api));
    if (detail.steps.length > this.layerSteps.length)
      this.layerSteps = detail.steps.map(({ number, begin, end }) => ({
        number,
        begin: this.clock.offset(begin),
        end: this.clock.offset(end),
      }));
    this.counters.add(detail, detail.role ? laneName({ role: detail.role, rank: detail.rank ?? 0 }) : "");
    this.#place();
    if (this.isStarted) this.selection.soon();
  }

  /** Say that nothing was recorded for so long between the files, as of recordings that are to be compared. */
  #sayApart(gap) {
    const note = find("[data-apart]");
    note.hidden = !gap;
    const text = gettext(
      "Between these files lie %(time)s in which nothing was recorded. To compare two recordings, bring each by itself.",
    );
    write(note, gap ? fill(text, { time: span(gap) }) : "");
  }

  /** Put all groups in their order, widen the extent, and keep the window where people have put it. */
  #place() {
    const { view, groups } = this;
    const layers = [...groups.layers].sort(([a], [b]) => this.#rankOf(a) - this.#rankOf(b)).flatMap(([, list]) => list);
    let [from, to] = [Infinity, -Infinity];
    const windows = [...this.layers.details.values()].map(({ begin, end }) =>
      [begin, end].map((at) => this.clock.offset(at)),
    );
    for (const [begin, end] of windows) {
      from = Math.min(from, begin);
      to = Math.max(to, end);
    }
    this.#sayApart(emptyBetween(windows));
    for (const lane of groups.phases?.lanes ?? []) {
      const row = lane.rows?.[0];
      if (!row?.length) continue;
      from = Math.min(from, row.start[0]);
      to = Math.max(to, row.end[row.length - 1]);
    }
    view.steps = this.phaseSteps.length ? this.phaseSteps : this.layerSteps;
    if (Number.isFinite(from)) {
      view.zero = from;
      view.setExtent({ from, to: Math.max(to, from + 1000) });
    }
    this.pins.know(layers);
    this.layout.setGroups([this.path.group, groups.phases, ...layers].filter((group) => group !== null));
    this.strip.loaded();
    this.#empty();
    this.menu.draw();
    view.draw();
  }

  #rankOf(id) {
    return this.layers.trace.layers.findIndex((layer) => layer.id === id);
  }

  #empty() {
    const hasLanes = this.layout.groups.length > 0;
    const has = hasLanes || this.counters.known.size > 0;
    const body = find("[data-body]");
    body.hidden = !has;
    body.dataset.lanes = hasLanes ? "some" : "none"; // without lanes the curves stand below the axis
    find("[data-dock]").hidden = this.layers.numReady === 0; // it tells of files alone
    find(".trace-side").hidden = !(has || !this.isStarted || this.layers.isWaiting);
    const empty = field("empty");
    empty.hidden = has;
    if (has || !this.isStarted) return;
    const failed = this.layers.trace.layers.filter(({ state }) => state === "failed");
    const text = this.layers.isWaiting
      ? gettext("Nothing to show yet. The timeline appears here as soon as the first file is imported.")
      : failed.length
        ? failed.map(({ file_name: name, problem }) => `${name}: ${problem}`).join(" ")
        : gettext("There is nothing in this trace.");
    write(empty.firstElementChild, text);
  }

  /** Take the window, selection and event from the address. */
  #restore() {
    const offset = (text) => (/^\d{1,20}$/.test(text ?? "") ? this.clock.offset(text) : Number.NaN);
    const [from, to] = [offset(query.get("from")), offset(query.get("to"))];
    if (to > from) this.view.setWindow({ from, to });
    const [a, b] = (query.get("sel") ?? "").split("-").map(offset);
    if (b > a) this.view.select({ from: a, to: b });
    const [layer, event] = (query.get("event") ?? "").split(".").map(Number);
    if (layer > 0 && event >= 0) this.#chooseFromAddress(layer, event);
    this.isRestored = true;
  }

  async #chooseFromAddress(layer, event) {
    try {
      const answer = await fetch(`${page.api}/layers/${layer}/events/${event}`, {
        headers: { Accept: "application/json" },
      });
      if (answer.ok) goTo(this.view, this.clock, { ...(await answer.json()), layer });
    } catch {
      // The timeline stands without it; the offline notice says why.
    }
  }

  #listen() {
    const { view, clock } = this;
    view.addEventListener("window", () => {
      query.set("from", view.window ? clock.absolute(view.window.from) : "");
      query.set("to", view.window ? clock.absolute(view.window.to) : "");
    });
    view.addEventListener("selection", () =>
      query.set(
        "sel",
        view.selection ? `${clock.absolute(view.selection.from)}-${clock.absolute(view.selection.to)}` : "",
      ),
    );
    view.addEventListener("chosen", () => {
      const { layer, id = -1 } = view.chosen ?? {};
      query.set("event", layer && id >= 0 ? `${layer}.${id}` : "");
    });
    view.addEventListener("folds", () => this.#folds());
    view.addEventListener("hover", ({ detail }) => this.#tip(detail));
    view.addEventListener("drawn", () => this.#legendSoon());
  }

  #folds() {
    query.set("fold", [...this.layout.folded].join(",") || "none");
    query.set("deep", [...this.layout.deep].join(","));
    query.set("hide", [...this.layout.hidden].join(","));
    query.set("order", this.layout.order.join(","));
    this.pins.keep();
    this.menu.draw();
  }

  #tools() {
    const { view } = this;
    for (const button of document.querySelectorAll("[data-zoom]"))
      button.addEventListener("click", view.buttons[button.dataset.zoom ?? ""]);
    const axis = (isByStep) => {
      view.isByStep = isByStep;
      for (const button of document.querySelectorAll("[data-axis]"))
        button.setAttribute("aria-pressed", String((button.dataset.axis === "step") === isByStep));
      query.set("axis", isByStep ? "step" : "");
      view.draw();
    };
    for (const button of document.querySelectorAll("[data-axis]"))
      button.addEventListener("click", () => axis(button.dataset.axis === "step"));
    axis(view.isByStep);
    onKeys(Object.fromEntries([..."0z+=-wasd"].map((key) => [key, view.keys[key]])));
  }

  #tip(detail) {
    const tip = find("[data-tip]");
    tip.hidden = !detail;
    if (!detail) return;
    const { event, column, x, y } = detail;
    const category = event ? CATEGORIES[event.category] : CATEGORIES[column.category];
    const phase = event?.about ? (phases.get(event.about.phase)?.label ?? event.about.phase) : null;
    const name = event ? event.about?.name || phase || event.label || event.name : column.label || column.text;
    const parts = event
      ? [
          span(event.end - event.begin),
          fill(gettext("at %(time)s"), {
            time: axisText(event.begin - this.view.zero, Math.max((event.end - event.begin) / 100, 1)),
          }),
          event.about?.step > 0 ? fill(gettext("step %(n)s"), { n: event.about.step }) : "",
        ]
      : [
          fill(gettext("longest here; %(share)s busy"), { share: `${Math.round(column.busy * 100)} %` }),
          gettext("click to look closer"),
        ];
    tip.replaceChildren(
      el("b", { class: "cut" }, name),
      el("span", { class: "faint nowrap" }, [categoryWord(category), ...parts].filter(Boolean).join(" · ")),
    );
    const body = find("[data-body]");
    const scroll = find("[data-scroll]");
    const left = Math.min(x + 14, Math.max(body.clientWidth - tip.offsetWidth - 4, 0));
    tip.style.left = `${left}px`;
    tip.style.top = `${scroll.offsetTop + y + 18}px`;
  }

  #legendSoon() {
    this.legend ||= setTimeout(() => {
      this.legend = 0;
      this.#drawLegend();
    }, 300);
  }

  /** Name the colours of what was loaded: phases first, then categories. */
  #drawLegend() {
    const seenPhases = new Set();
    const seen = new Set();
    for (const { lanes } of this.layout.groups) {
      for (const lane of lanes) {
        for (const row of lane.rows ?? []) for (const name of row?.table.names ?? []) seenPhases.add(name);
        for (const tile of lane.tiles?.known.values() ?? [])
          for (const [i, category] of tile.table.cats.entries()) {
            if (phases.has(tile.table.names[i]) && (category === 2 || category === 3))
              seenPhases.add(tile.table.names[i]);
            else seen.add(CATEGORIES[category]);
          }
      }
    }
    seen.delete("phase");
    const signature = [...seenPhases, "|", ...seen].sort().join();
    if (signature === this.legendShown) return;
    this.legendShown = signature;
    const key = (token, word) =>
      el("span", { class: "trace-key" }, el("i", { class: "swatch", "data-token": token }), word);
    find("[data-legend]").replaceChildren(
      ...page.phases.filter((phase) => seenPhases.has(phase.key)).map((phase) => key(`--${phase.token}`, phase.label)),
      ...CATEGORIES.filter((category) => seen.has(category) && category !== "memset").map((category) =>
        key(categoryToken(category), categoryWord(category)),
      ),
    );
    for (const swatch of document.querySelectorAll("[data-legend] [data-token]"))
      swatch.style.background = `var(${swatch.dataset.token})`;
  }
}

deletion();
files();
if (document.querySelector("[data-trace]")) {
  const trace = new TracePage();
  Object.assign(window, { pitwallTrace: trace }); // for tests
  trace.start();
}
