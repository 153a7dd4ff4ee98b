/** The page Compare: charts in the browser, the rest drawn by the server and exchanged where it changed. */

import { COMPARED_AXES } from "./charts/axes.js";
import { viewOptions, wireControls } from "./charts/controls.js";
import { ChartView } from "./charts/view.js";
import { offerRuns } from "./compare/add.js";
import { Charts } from "./compare/charts.js";
import { NoteForm } from "./compare/note.js";
import { address, fetchData, fetchParts, pageData, plain } from "./compare/page.js";
import { PointPanel } from "./compare/point-panel.js";
import { CompareStore } from "./compare/store.js";
import { around } from "./dom.js";
import { el, fill, gettext, messageOf } from "./format.js";
import { onKeys } from "./keys.js";
import { Query } from "./query.js";
import { atMostEvery } from "./refresh.js";
import { openFeed } from "./socket.js";
import { toast } from "./toast.js";

const REFRESH_MS = 3000;
const POLL_MS = 10_000; // what no message says: a run that lost contact, a resumed history

let page = pageData();
const query = new Query();
query.write = () => {
  clearTimeout(query.timer);
  history.replaceState(history.state, "", location.pathname + plain(query.values));
};

query.on = (path) => path + plain(query.values);

const view = new ChartView({ ...viewOptions(query, COMPARED_AXES), end: page?.numSteps ?? 0 });
const store = new CompareStore(view);
const charts = new Charts({ page, store, view, query });
/** @type {PointPanel | null} */
let panel = null;

let turn = 0; // counts the views asked for: an answer for an earlier one comes too late

/** Show another view: a link's, without moving the page. */
async function go(href, { isBack = false } = {}) {
  if (isBack) query.values = new URLSearchParams(location.search);
  else query.write(); // what was changed within the last moment
  const url = isBack ? href : address(href);
  try {
    turn += 1;
    const mine = turn;
    const next = await fetchParts(url, () => mine === turn, { isStrict: true });
    if (next === undefined) return;
    turn += 1; // what was asked for meanwhile, to follow live runs, was asked of the old address
    if (!next) {
      location.href = url;
      return;
    }
    if (!isBack) history.pushState(null, "", url);
    query.values = new URLSearchParams(location.search);
    page = next;
    charts.show(page);
    if (!isBack) panel?.restore(); // a link leaves the point
    follow();
  } catch {
    toast(gettext("The console does not answer. Try again in a moment."), { isError: true });
  }
}

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const file = around(event, "a[data-series-csv], a[data-report]");
  if (file) file.href = address(file.href); // with the charts chosen by now
  const link = around(event, "a[data-view], a[data-keep]");
  if (!link) return;
  event.preventDefault();
  if (link.matches("[data-keep]")) {
    query.write();
    location.href = keepFilter(link);
  } else go(link.href);
});
addEventListener("popstate", async () => {
  const isSame = apartFromPoint(query.values) === apartFromPoint(new URLSearchParams(location.search));
  if (isSame) query.values = new URLSearchParams(location.search);
  else await go(location.pathname + location.search, { isBack: true });
  panel?.restore();
});

/** Return a query without the point that is open beside the charts: no part of the page hangs on it. */
function apartFromPoint(values) {
  const others = new URLSearchParams(values);
  others.delete("point");
  return plain(others);
}

/** A tab keeps smoothing, zoom and the like; the filter of metrics is of its own tab. */
function keepFilter(link) {
  const url = new URL(address(link.href), location.href);
  url.searchParams.delete("q");
  return url.pathname + plain(url.searchParams);
}

// ---- tools ------------------------------------------------------------------------------------------------------------

function tools() {
  wireControls(view, query, {
    onSmoothing: () => store.reread(),
    onAxis: () => {
      panel?.leave();
      charts.show(page);
      store.reread();
      readMarks();
    },
    onZoom: () => store.reread(),
  });
  const search = document.querySelector("input[data-chart-search]");
  if (search) {
    search.value = query.get("q") ?? "";
    search.addEventListener("input", () => {
      query.set("q", search.value.trim());
      charts.show(page);
    });
  }
  chooser();
  store.onProblem = (error) => {
    const place = document.querySelector("[data-charts-problem]");
    if (!place) return;
    if (!error) place.replaceChildren();
    else
      place.replaceChildren(
        fill(gettext("Charts could not be read: %(problem)s"), { problem: messageOf(error) }),
        " ",
        el("button", { class: "link", type: "button", onclick: () => store.refresh() }, gettext("Try again")),
      );
  };
}

/** Read where marks stand on this x axis, and which there are by now. */
async function readMarks() {
  query.write();
  const mine = turn;
  try {
    const next = await fetchData(location.href);
    if (!next || mine !== turn) return;
    page = { ...next, tab: page.tab };
    charts.mark(page);
    view.redraw();
  } catch {
    // The charts stay without marks; what reads the lines says that the console does not answer.
  }
}

function chooser() {
  const place = document.querySelector("[data-metric-chooser]");
  if (!place) return;
  const menu = place.closest("details");
  menu?.addEventListener("toggle", () => {
    if (!menu.open) return;
    const { shown, all, label } = charts.chosen();
    place.replaceChildren(
      ...all.map((name) => {
        const box = el("input", { type: "checkbox", value: name, checked: shown.includes(name) });
        return el("label", { class: "menu-item", title: name }, box, el("span", { class: "cut" }, label(name)));
      }),
    );
  });
  place.addEventListener("change", () => {
    const names = [...place.querySelectorAll("input:checked")].map((box) => box.value);
    const isDefault = names.length === page.charts.length && page.charts.every((name) => names.includes(name));
    query.set("m", isDefault ? "" : names.join(","));
    charts.show(page);
  });
}

document.addEventListener("change", (event) => {
  const steps = around(event, "select[data-sample-step]");
  if (steps) go(`${location.pathname}?${steps.dataset.query}&at=${steps.value}`);
});

// ---- live -------------------------------------------------------------------------------------------------------------

const refresh = atMostEvery(REFRESH_MS, async () => {
  if (!page?.isLive) return;
  const mine = turn;
  const next = await fetchParts(sameStep(location.href), () => mine === turn);
  if (next) {
    page = next;
    charts.show(page);
    follow();
  }
  if (document.querySelector("[data-compare-charts]")) await store.refresh();
});

/** Samples that one reads stay, whatever steps have come: newer ones are chosen by the reader. */
function sameStep(href) {
  const url = new URL(href);
  const shown = document.querySelector("select[data-sample-step]")?.value;
  if (shown) url.searchParams.set("at", shown);
  return url.href;
}

const feeds = new Map();
let poll = 0;

/** Follow the runs' projects while one of the runs is live. */
function follow() {
  const projects = new Set(page?.isLive ? page.runs.map((run) => run.project) : []);
  for (const [project, feed] of feeds)
    if (!projects.has(project)) {
      feed.close();
      feeds.delete(project);
    }
  for (const project of projects) {
    if (feeds.has(project)) continue;
    feeds.set(
      project,
      openFeed({
        path: `/ws/updates?project=${encodeURIComponent(project)}`,
        onOpen: () => refresh(),
        onMessage: (message) => {
          if (message.type === "run" && page.runs.some((run) => run.id === message.run.id)) refresh();
        },
      }),
    );
  }
  clearInterval(poll);
  if (page?.isLive) poll = setInterval(refresh, POLL_MS);
}

// ---- keys -------------------------------------------------------------------------------------------------------------

function difference(by) {
  const rows = [...document.querySelectorAll("tr[data-difference]")];
  if (!rows.length) return false;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : (at + by + rows.length) % rows.length];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  return true;
}

const stepKey = (name) => {
  const link = document.querySelector(`a[data-step-${name}]`);
  if (!link) return false;
  go(link.href);
  return true;
};

if (page) {
  tools();
  if (document.querySelector("[data-step-earlier], [data-step-later], [data-sample-step]"))
    onKeys({ ArrowLeft: () => stepKey("earlier"), ArrowRight: () => stepKey("later") });
  onKeys({
    e: () => difference(1),
    E: () => difference(-1),
    b: () => {
      const card = document.activeElement?.closest(".cmp-card:not(.is-base)");
      if (!card) return false;
      go(`${location.pathname}?${card.dataset.baseQuery}`);
      return true;
    },
  });
  new NoteForm({ charts, view, onWritten: readMarks });
  panel = new PointPanel({ charts, view, query });
  charts.show(page);
  panel.restore();
  follow();
}
offerRuns({
  ids: () => [
    ...(new URLSearchParams(location.search).get("runs")?.split(",") ?? []),
    ...(page?.runs ?? []).map((run) => run.id),
  ],
  add: (id) => {
    const values = new URLSearchParams(location.search);
    values.set("runs", [...(values.get("runs")?.split(",").filter(Boolean) ?? []), id].join(","));
    location.href = location.pathname + plain(values);
  },
});
Object.assign(window, { pitwallCompare: { store, view, charts } }); // for the console of curious people, and for tests
