/** The page of one run: one store, one feed, nine tabs. */

import { RUN_AXES } from "./charts/axes.js";
import { viewOptions, wireControls } from "./charts/controls.js";
import { changeMarks } from "./charts/knob-changes.js";
import { pickNow } from "./charts/pick.js";
import { alertMarks, captureMarks, checkpointMarks, noteMarks, restartMarks } from "./charts/run-marks.js";
import { ChartView } from "./charts/view.js";
import { find, jsonOf } from "./dom.js";
import { el, fill, gettext, messageOf } from "./format.js";
import { onKeys } from "./keys.js";
import { Query } from "./query.js";
import { Actions } from "./run/actions.js";
import { Attempts } from "./run/attempts.js";
import { Captures, hasBegun } from "./run/captures.js";
import { ChartTab } from "./run/chart-tab.js";
import { ConfigTab } from "./run/config.js";
import { DashboardTab } from "./run/dashboard-tab.js";
import { Feed } from "./run/feed.js";
import { FileTab, fileUrl } from "./run/files.js";
import { Header } from "./run/header.js";
import { Health } from "./run/health.js";
import { LargeChart } from "./run/large-chart.js";
import { LiveKnobs } from "./run/live-knobs.js";
import { LogTab } from "./run/logs.js";
import { Notes } from "./run/notes.js";
import { Overview } from "./run/overview.js";
import { ProfileAsk } from "./run/profile-ask.js";
import { ProfileTab } from "./run/profile-tab.js";
import { Resume } from "./run/resume.js";
import { RunAlerts } from "./run/run-alerts.js";
import { SampleTab } from "./run/samples.js";
import { StepPanel } from "./run/step-panel.js";
import { RunStore } from "./run/store.js";
import { SystemTab } from "./run/system-tab.js";
import { Tabs } from "./run/tabs.js";
import { TimelineTab } from "./run/timeline-tab.js";
import { TryIt } from "./run/tryit.js";

const RETRY_MS = 3000;
const LATER_MS = 1000;
const GONE = [404, 409]; // of a run that is deleted, or in the trash
const KEYED = ["checkpoint", "alarm", "good", "change", "capture", "resume", "alert", "note"]; // marks that the legend names where there are any
const ENDED = ["finished", "failed", "stopped"];

const page = jsonOf("run-page");
const phases = new Map(page.phases.map((phase) => [phase.key, phase]));
const query = new Query();
const store = new RunStore();
store.setAttempts(page.header.attempts);
const view = new ChartView({
  ...viewOptions(query, RUN_AXES),
  end: endOf(page.header),
  showsDead: query.get("dead") === "1",
});
const feed = new Feed(store, page, view);
const header = new Header(page, phases);
const actions = new Actions(page, header);
const attempts = new Attempts();
const resume = new Resume({ page, query });
const large = new LargeChart({ page, query, store, view, feed });
const context = { page, phases, query, store, view, feed, large };
const files = new FileTab(context);
const captures = new Captures(context);
const liveKnobs = new LiveKnobs(context);
const health = new Health(context);
const alerts = new RunAlerts(context);
const notes = new Notes(context);
const ask = new ProfileAsk({ page, captures });
const tabs = {
  overview: new Overview(context),
  charts: new ChartTab(context),
  dashboard: new DashboardTab(context),
  timeline: new TimelineTab({ ...context, captures }),
  profile: new ProfileTab({ ...context, captures }, ask),
  samples: new SampleTab(context),
  logs: new LogTab(context),
  system: new SystemTab(context),
  config: new ConfigTab(context),
  files,
};
/** @type {{ show(): void, update?(header: any): void, reset?(): void }[]} */
const all = Object.values(tabs);
const tryIt = new TryIt(context);
const stepPanel = new StepPanel(context);

/** Return up to which step charts have room: of a run that goes on to its planned end, of one that is over to its last. */
function endOf({ state, num_steps: planned }) {
  return ENDED.includes(state) ? 0 : planned || 0;
}

function showHeader(next) {
  store.setAttempts(next.attempts);
  if (endOf(next) !== view.end) {
    view.end = endOf(next); // it is over, or was resumed, maybe to train longer
    view.redraw();
  }
  const isEnd = header.header && !ENDED.includes(header.header.state) && ENDED.includes(next.state);
  header.show(next);
  if (isEnd) {
    // what it died of is in the log by now, and all that it measured is told
    for (const id of ["symptoms", "run-plan", "diagnosis", "log-findings"])
      find(`#${id}`).dispatchEvent(new Event("pitwall:ended"));
  }
  actions.show(next);
  attempts.show(next);
  resume.show(next);
  showBranches();
  ask.update(next);
  liveKnobs.update(next);
  health.update(next);
  alerts.update(next);
  notes.update(next);
  for (const tab of all) tab.update?.(next);
}

/** Offer the dead branches where there are any. */
function showBranches() {
  const { hasDead } = store.branches;
  for (const label of document.querySelectorAll("[data-dead-toggle]")) label.hidden = !hasDead;
}

function tools() {
  const boxes = document.querySelectorAll("input[data-dead]");
  for (const box of boxes) {
    box.checked = view.showsDead;
    box.addEventListener("change", () => {
      view.showsDead = box.checked;
      for (const other of boxes) other.checked = view.showsDead;
      query.set("dead", view.showsDead ? "1" : "");
      view.redraw(true);
    });
  }
  wireControls(view, query, {
    onSmoothing: () => feed.loader.resmooth(),
    onAxis: () => {
      tellMissing();
      feed.wantAxis(view.axis);
    },
    onZoom: refine,
  });
}

/** Read what charts in sight show of a zoom. */
function refine() {
  const names = [...view.charts]
    .filter((chart) => chart.isSeen)
    .flatMap((chart) => chart.plot.lines.map((line) => line.name));
  feed.loader.zoom(view.zoom, [...new Set(names)]);
}

/** Say so where the run has not measured the x axis. */
function tellMissing() {
  view.setMissing(store.lacks(view.axis) ? RUN_AXES[view.axis].missing(header.header.name) : "");
}

/** Panels that fill the window need to know where they begin. */
function measure() {
  const panel = find("[data-panel]:not([hidden])");
  document.documentElement.style.setProperty(
    "--panel-top",
    `${Math.round(panel.getBoundingClientRect().top + scrollY)}px`,
  );
}

function listen() {
  new ResizeObserver(measure).observe(find(".run-head"));
  store.on("series", (names) => {
    for (const chart of view.charts) if (chart.plot.lines.some((line) => names.has(line.name))) chart.invalidate();
  });
  for (const topic of ["spans", "axis"])
    store.on(topic, () => {
      if (view.axis === "step" || (topic === "spans" && view.axis !== "time")) return;
      tellMissing();
      view.redraw();
      if (view.zoom) refine(); // which steps it shows may be known now
    });
  store.on("frame", () => {
    header.received();
    header.showLive();
  });
  feed.onRun = showHeader;
  feed.onGone = (about) => header.gone(about);
  find("#run-alerts").addEventListener("htmx:beforeRequest", (event) => {
    if (header.isGone) event.preventDefault(); // it would be refused again and again
  });
  feed.onReset = () => {
    for (const tab of all) tab.reset?.();
  };
  feed.onProblem = (error) => {
    const place = find('[data-field="charts-error"]');
    if (!error) place.replaceChildren();
    else
      place.replaceChildren(
        fill(gettext("Charts could not be read: %(problem)s"), { problem: messageOf(error) }),
        " ",
        el("button", { class: "link", type: "button", onclick: () => feed.retry() }, gettext("Try again")),
      );
  };
  const mark = () => {
    view.marks = [
      ...checkpointMarks(files.artifacts, (attempt, step) => store.branches.isDead(attempt, step)),
      ...captureMarks(captures.list.filter(hasBegun)),
      ...health.marks(),
      ...restartMarks(store.branches.resumes),
      ...changeMarks(liveKnobs.changes),
      ...alertMarks(alerts.list),
      ...noteMarks(notes.list),
    ];
    const types = new Set(view.marks.map(({ type }) => type));
    for (const type of KEYED)
      for (const key of document.querySelectorAll(`[data-${type}-key]`)) key.hidden = !types.has(type);
    view.redraw();
  };
  tabs.overview.found = () => [...health.events(), ...alerts.events()];
  for (const one of [notes, alerts, health]) one.addEventListener("change", () => tabs.overview.refresh());
  for (const one of [notes, alerts]) one.addEventListener("change", mark);
  captures.addEventListener("change", mark);
  liveKnobs.addEventListener("change", mark);
  health.addEventListener("change", () => {
    mark();
    if (health.hasChanged) find("#symptoms").dispatchEvent(new Event("pitwall:ended")); // say what it is now
  });
  store.on("branches", mark);
  files.onChange(() => {
    mark();
    const { models } = files;
    const [model] = models;
    const link = find('a[data-action="download-model"]');
    link.hidden = !model;
    if (model) link.href = fileUrl(page, model);
    tryIt.offer(models);
  });
}

/** Do what no chart waits for: after the first points have come, or in a second. */
function soon(work) {
  let timer = 0;
  const once = () => {
    store.removeEventListener("series", once);
    clearTimeout(timer);
    work();
  };
  store.addEventListener("series", once);
  timer = window.setTimeout(once, LATER_MS);
}

async function start() {
  feed.wantAxis(view.axis);
  try {
    await feed.start();
  } catch (/** @type {any} */ error) {
    if (GONE.includes(error.status)) header.gone({ isKnown: true });
    else feed.onProblem(error);
    setTimeout(start, RETRY_MS);
  }
}

tabs.charts.onAdd = (metric) => tabs.dashboard.add(metric);
view.onPick = (point) => stepPanel.pick(point);
tabs.system.onPick = (point) => stepPanel.pick(point);
large.onToggle = () => stepPanel.settle();
onKeys({
  Enter: () => {
    const { chart } = document.activeElement?.closest(".chart-card")?.querySelector("div.chart") ?? {};
    return chart ? pickNow(chart) : false;
  },
});
tools();
listen();
showHeader(page.header);
const router = new Tabs(query, (name, details) => {
  ask.emphasize(name === "profile");
  if (details.query) tabs.charts.filter(details.query);
  tabs[name].show();
  for (const left of ["charts", "dashboard"]) if (name !== left) tabs[left].hide();
});
router.open(page.tab);
stepPanel.restore();
start();
soon(() => {
  files.load();
  captures.load();
  notes.load();
  alerts.load();
});
Object.assign(window, { pitwallRun: { store, feed, view, tabs } }); // for the console of curious people, and for tests
