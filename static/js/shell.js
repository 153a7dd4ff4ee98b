// The frame of every page: menus, theme, keyboard map, palette, cluster use, toasts, offline notice.

import { around, find } from "./dom.js";
import { csrfHeaders, fill, gettext } from "./format.js";
import { onChord, onKeys } from "./keys.js";
import { addCommand, openPalette } from "./palette.js";
import { watchScrollBoxes } from "./scroll-boxes.js";
import { adoptServerToasts, toast } from "./toast.js";

const root = document.documentElement;

function keep(name, value) {
  const secure = location.protocol === "https:" ? "; Secure" : "";
  // biome-ignore lint/suspicious/noDocumentCookie: not every browser has the Cookie Store API
  document.cookie = `${name}=${value}; path=/; max-age=31536000; SameSite=Lax${secure}`;
}

// Pages tell times in the zone of whoever reads them: the server's parts from the next page on.
const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
if (timeZone && !document.cookie.split("; ").includes(`pitwall_zone=${timeZone}`)) keep("pitwall_zone", timeZone);

function switchTheme() {
  const theme = root.dataset.bsTheme === "dark" ? "light" : "dark";
  root.dataset.bsTheme = theme;
  root.dataset.themeChoice = theme;
  keep("pitwall_theme", theme);
  document.dispatchEvent(new CustomEvent("pitwall:theme", { detail: theme }));
}

function openDialog(/** @type {string | undefined} */ id = "") {
  const dialog = document.getElementById(id);
  if (id === "palette") openPalette();
  else if (dialog instanceof HTMLDialogElement) dialog.showModal();
}

// Menus are <details>: close on Esc, on a click elsewhere, and when another one opens.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!event.composedPath().includes(menu) || around(event, "a.menu-item, button.menu-item:not([data-keep-open])"))
      menu.open = false;
  }
  const opener = around(event, "[data-open]");
  if (opener) openDialog(opener.dataset.open);
  const closer = around(event, "[data-close]");
  if (closer) closer.closest("dialog")?.close();
  if (around(event, "[data-action=theme]")) switchTheme();
  const copier = around(event, "[data-copy]");
  if (copier) copy(copier.dataset.copy);
});

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(fill(gettext("Copied %(text)s"), { text: text.length > 40 ? `${text.slice(0, 40)}…` : text }));
  } catch {
    toast(gettext("The browser does not let pages copy here. Select the text and copy it yourself."), {
      isError: true,
    });
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const menu = document.querySelector("details.menu[open]");
    if (menu) {
      menu.open = false;
      find("summary", menu).focus();
    }
  } else if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
  } else if ((event.ctrlKey || event.metaKey) && event.key === "/") {
    event.preventDefault();
    openDialog("keys");
  } else if (event.altKey && event.code === "KeyM") {
    event.preventDefault();
    switchTheme();
  }
});

const pages = new Map();
for (const link of document.querySelectorAll(".topnav a")) {
  pages.set(link.dataset.keys, link.href);
  onChord(link.dataset.keys, () => {
    location.href = link.href;
  });
}
onKeys({
  "?": () => openDialog("keys"),
  "/": () => {
    const filter = document.querySelector("input[data-filter]");
    if (filter) {
      filter.focus();
      filter.select();
    } else openPalette();
  },
  n: () => {
    if (pages.has("g n")) location.href = pages.get("g n");
  },
});
addCommand(gettext("Switch theme"), switchTheme, "Alt M");
addCommand(gettext("Keyboard"), () => openDialog("keys"), "?");
addCommand(gettext("API reference"), () => {
  location.href = "/api/docs";
});
addCommand(
  gettext("Traces: open or upload"),
  () => {
    location.href = "/traces/";
  },
  "g p",
);
onChord("g p", () => {
  location.href = "/traces/";
});

// How much of the cluster is in use; once every ten seconds, and not in a background tab.
// Where pages or tabs do not fit side by side, the current one is in sight.
for (const link of document.querySelectorAll(".topnav [aria-current], .tabs [aria-current]")) {
  const row = /** @type {HTMLElement} */ (link.parentElement);
  row.scrollLeft += Math.max(0, link.getBoundingClientRect().right + 24 - row.getBoundingClientRect().right);
}
const usage = document.querySelector("a[data-usage]");
async function showUsage() {
  if (document.hidden || !usage) return;
  try {
    const answer = await fetch(usage.dataset.usage ?? "", { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const { html, used, total, ingest_problem: problem, alerts } = await answer.json();
    const bell = document.querySelector("[data-bell] b");
    if (bell) {
      bell.textContent = alerts > 99 ? "99+" : String(alerts);
      bell.hidden = !alerts;
    }
    const notice = document.querySelector("[data-ingest-problem]");
    if (notice) {
      find("span", notice).textContent = problem;
      notice.hidden = !problem;
    }
    find(".usage-text", usage).innerHTML = html; // escaped by the server's template
    const meter = find("progress", usage);
    meter.hidden = total === null;
    if (total !== null) {
      meter.max = Math.max(total, 1);
      meter.value = used;
    }
  } catch {
    // The offline notice says it.
  }
}
if (usage) {
  showUsage();
  setInterval(showUsage, 10_000);
  document.addEventListener("visibilitychange", showUsage);
  document.addEventListener("pitwall:alerts", showUsage);
}

// Offline: shown after three seconds without a connection, taken away when it is back.
let offlineTimer = 0;
document.addEventListener("pitwall:connection", ({ detail }) => {
  const banner = find("[data-offline]");
  if (detail.isConnected) {
    clearTimeout(offlineTimer);
    offlineTimer = 0;
    banner.hidden = true;
  } else {
    offlineTimer ||= setTimeout(() => {
      banner.hidden = false;
    }, 3000); // each try that fails says it again
  }
  for (const live of document.querySelectorAll(".live")) live.dataset.live = detail.isConnected ? "on" : "off";
});

// What htmx could not do is said, never swallowed.
document.addEventListener("htmx:sendError", () =>
  toast(gettext("The console does not answer. Try again in a moment."), { isError: true }),
);
document.addEventListener("htmx:responseError", ({ detail }) => {
  const said = detail.xhr.getResponseHeader("X-Problem");
  const text = said
    ? decodeURIComponent(said)
    : fill(gettext("The console refused: %(status)s. Reload the page and try again."), { status: detail.xhr.status });
  toast(text, { isError: true });
});
document.addEventListener("htmx:configRequest", ({ detail }) => Object.assign(detail.headers, csrfHeaders()));
document.addEventListener("pitwall:toast", ({ detail }) => toast(detail.text, detail));

watchScrollBoxes();
adoptServerToasts();
