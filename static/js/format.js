// Texts, numbers and small pieces of DOM, written the same way as console/templatetags/pitwall.py writes them.
// Strings of a module go through gettext/ngettext, so that makemessages finds them.

/** @type {(text: string) => string} */
export const gettext = globalThis.gettext ?? ((text) => text);
/** @type {(one: string, many: string, n: number) => string} */
export const ngettext = globalThis.ngettext ?? ((one, many, n) => (n === 1 ? one : many));

/** Fill %(name)s of a translated text. */
export function fill(/** @type {string} */ text, /** @type {Record<string, any>} */ values) {
  return text.replace(/%\((\w+)\)s/g, (_, name) => String(values[name] ?? ""));
}

/** Return what was thrown as a sentence. */
export const messageOf = (/** @type {unknown} */ error) => (error instanceof Error ? error.message : String(error));

/** Write text only where it changed, so that nothing is laid out again for nothing. */
export function write(/** @type {Node | null} */ node, /** @type {string} */ text) {
  if (node && node.textContent !== text) node.textContent = text;
}

/**
 * Build an element: el("span", {class: "num", title}, "text", child). Text is never parsed as HTML.
 *
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes] handlers as "onclick"; null and false are left out
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on") && typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Let `node` hold these rows, and leave those that are there already: one that is being pressed stays under the pointer. */
export function renew(/** @type {Element} */ node, /** @type {Element[]} */ rows) {
  rows.forEach((row, i) => {
    const old = node.children[i];
    if (!old) node.append(row);
    else if (!old.isEqualNode(row)) old.replaceWith(row);
  });
  while (node.children.length > rows.length) node.lastElementChild?.remove();
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Build an SVG element.
 *
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {...Node} children
 */
export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** An icon of the sprite; decoration only, so a word or an aria-label must stand beside it. */
export function icon(/** @type {string} */ name) {
  const use = svg("use", { href: `${document.documentElement.dataset.icons}#${name}` });
  return svg("svg", { class: "icon", "aria-hidden": "true" }, use);
}

/** @type {Record<string, string>} */
const STATE_ICONS = {
  queued: "clock",
  starting: "circle-half-2",
  running: "player-play",
  stopping: "square",
  stopped: "square",
  finished: "check",
  failed: "x",
  lost: "wifi-off",
};
const LIVE = ["starting", "running", "stopping"];

/** The state that is shown: lost contact stands in front of a live state. */
export function shownState(/** @type {string} */ state, isLostContact = false) {
  return isLostContact && LIVE.includes(state) ? "lost" : state;
}

function stateWord(/** @type {string} */ shown) {
  /** @type {Record<string, string>} */
  const words = {
    queued: gettext("queued"),
    starting: gettext("starting"),
    running: gettext("running"),
    stopping: gettext("stopping"),
    stopped: gettext("stopped"),
    finished: gettext("finished"),
    failed: gettext("failed"),
    lost: gettext("lost contact"),
  };
  return words[shown] ?? shown;
}

/** The badge of a run's state: icon, word and tint. */
export function stateBadge(/** @type {string} */ state, isLostContact = false) {
  const shown = shownState(state, isLostContact);
  return el(
    "span",
    { class: "state", "data-state": shown },
    icon(STATE_ICONS[shown] ?? "help-circle"),
    stateWord(shown),
  );
}

/** 12,480 */
export function grouped(/** @type {number | null | undefined} */ value) {
  return value === null || value === undefined ? "—" : Math.trunc(value).toLocaleString("en-US");
}

/** A measured number with four significant digits: 0.9382, 38.9k, 3.00e-4; missing is a dash, minus a true minus. */
export function figure(/** @type {number | string | null | undefined} */ value) {
  if (typeof value === "string" && value) return value.replace("-", "−"); // NaN and infinities travel as words
  if (typeof value !== "number") return "—";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "−Infinity";
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (size >= 1e6) text = `${(size / 1e6).toFixed(1)}M`;
  else if (size >= 1e4) text = `${(size / 1e3).toFixed(1)}k`;
  else if (size >= 1000) text = Math.round(size).toLocaleString("en-US");
  else if (size < 0.001) text = size.toExponential(2).replace("e-0", "e-");
  else text = String(Number(size.toPrecision(4)));
  return value < 0 ? `−${text}` : text;
}

/** 42 s · 12 min · 3 h 05 min · 2 d 4 h */
function duration(/** @type {number | null | undefined} */ seconds) {
  if (seconds === null || seconds === undefined) return "—";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400)
    return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** An estimate as the interval it is: [1320, 1500] seconds are 22–25 min. */
export function interval(/** @type {[low: number, high: number] | null} */ estimate) {
  if (!estimate) return "—";
  const [low, high] = estimate;
  /** @type {[string, number, number]} */
  const [unit, size, digits] = high < 90 ? ["s", 1, 0] : high < 5400 ? ["min", 60, 0] : ["h", 3600, 1];
  const from = (Math.max(0, low) / size).toFixed(digits);
  const to = (high / size).toFixed(digits);
  return from === to ? `${to} ${unit}` : `${from}–${to} ${unit}`;
}

/** "4 s ago", for an age that is shown beside live data */
export function ago(/** @type {number} */ milliseconds) {
  return fill(gettext("%(age)s ago"), { age: duration(milliseconds / 1000) });
}

/** 118.2 GiB */
export function bytes(/** @type {number | null | undefined} */ value) {
  if (value === null || value === undefined) return "—";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  while (value >= 1024 && index < units.length - 1) {
    value /= 1024;
    index += 1;
  }
  return `${index ? value.toFixed(1) : Math.round(value)} ${units[index]}`;
}

/** What the browser sends with every POST of a module. */
export function csrfHeaders() {
  const carried = document.body.getAttribute("hx-headers");
  return carried ? JSON.parse(carried) : {};
}

/** Return the name of a device: "GPU 3"; "GPU" where its number is not told (-1). */
export function gpuName(/** @type {number} */ device) {
  return device >= 0 ? fill(gettext("GPU %(n)s"), { n: device }) : gettext("GPU");
}

/** Return the name of a lane: "policy 0", "vLLM 1", "driver". */
export function laneName(/** @type {{ role: string, rank: number }} */ { role, rank }) {
  return role === "driver" || role === "runner" ? role : `${roleName(role)} ${rank}`;
}

export const roleName = (/** @type {string} */ role) => (role === "vllm" ? "vLLM" : role);
