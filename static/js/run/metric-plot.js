/** What a card shows of one metric of a run: its words, and the plot of its chart. */

import * as numbers from "../charts/numbers.js";
import { fill, gettext } from "../format.js";

/** Return label, unit and definition of a metric; one that nobody has described describes itself. */
export const metricInfo = (page, name) =>
  page.metrics[name] ?? {
    label: ofDevice(name) || name,
    unit: numbers.unitOf(name),
    unit_text: unitText(name),
    definition: "",
  };

/** Return what a reading of one device is called, `gpu3_busy_percent`; "" for any other name. */
function ofDevice(/** @type {string} */ name) {
  const [, index, what] = /^gpu(\d+)_(\w+)$/.exec(name) ?? [];
  const words = {
    busy_percent: gettext("Device %(index)s, utilization"),
    memory_used_bytes: gettext("Device %(index)s, memory used"),
    memory_total_bytes: gettext("Device %(index)s, memory"),
    power_watts: gettext("Device %(index)s, power"),
    temperature_celsius: gettext("Device %(index)s, temperature"),
  };
  return fill(words[what] ?? "", { index });
}

const unitText = (/** @type {string} */ name) =>
  name.endsWith("_watts") ? "W" : name.endsWith("_celsius") ? "°C" : "";

/**
 * Put title and hint of a metric into a card, or into the dialog of a large chart.
 *
 * @param {any} page
 * @param {string} name
 * @param {ParentNode} card
 */
export function writeHead(page, name, card) {
  const info = metricInfo(page, name);
  const hint = /** @type {HTMLElement} */ (card.querySelector('[data-part="hint"]'));
  const body = /** @type {HTMLElement} */ (card.querySelector('[data-part="body"]'));
  const title = /** @type {HTMLElement} */ (card.querySelector("h2"));
  title.textContent = info.label;
  const shownName = info.label === name ? "" : name;
  hint.textContent = [shownName, numbers.isInNumbers(info.unit) ? "" : info.unit_text].filter(Boolean).join(", ");
  hint.title = info.definition ? `${name}: ${info.definition}` : name;
  body.setAttribute(
    "aria-label",
    fill(gettext("Chart of %(title)s; the newest value is in its head"), { title: info.label }),
  );
}

/**
 * Return the plot of one metric, in the run's color.
 *
 * @param {any} page
 * @param {{ kind: string, name: string }} metric
 */
export function metricPlot(page, { kind, name }) {
  const info = metricInfo(page, name);
  const color = `--run-${page.color % 10}`;
  const limits = page.chips
    .filter((chip) => chip.name === name && chip.limit !== null)
    .map((chip) => ({ value: chip.limit, label: fill(gettext("limit %(value)s"), { value: chip.limit }) }));
  return {
    lines: [{ name, label: info.label, color, isPoints: name.startsWith("eval/") }],
    unit: info.unit,
    limits,
    band: kind === "metric" ? page.bands[name] : undefined,
    isTime: kind === "system",
  };
}
