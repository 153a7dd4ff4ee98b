/** Numbers of charts and timelines, finer than ../format.js writes them. A value that was not measured is "—", never 0. */

import { bytes } from "../format.js";

const lang = globalThis.document?.documentElement.lang || "en";
const minus = (/** @type {string} */ text) => text.replace("-", "−");
/** @typedef {number | null | undefined} Value */
/** @type {Map<number, Intl.NumberFormat>} by the number of digits */
const fixed = new Map();

function grouped(/** @type {number} */ value, /** @type {number} */ digits) {
  const format =
    fixed.get(digits) ?? new Intl.NumberFormat(lang, { minimumFractionDigits: digits, maximumFractionDigits: digits });
  fixed.set(digits, format);
  return minus(format.format(value));
}

/** Return `value` with about three digits that mean something: 0.938, 15.6, 1,024, 3.0e-4. */
export function number(/** @type {Value} */ value) {
  if (value === null || value === undefined) return "—";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3) return minus(value.toExponential(1));
  if (size < 0.1) return grouped(value, 4);
  if (size < 10) return grouped(value, size < 1 ? 3 : 2);
  if (size < 1000) return grouped(value, Number.isInteger(value) ? 0 : 1);
  if (size < 1e7) return grouped(value, 0);
  return minus(value.toExponential(2));
}

/** Return tokens, points: 38.9k, 1.2M. */
export function short(/** @type {number} */ value) {
  if (!Number.isFinite(value)) return "—";
  if (Math.abs(value) >= 1e6) return `${grouped(value / 1e6, 1)}M`;
  if (Math.abs(value) >= 1e4) return `${grouped(value / 1e3, 1)}k`;
  return Math.abs(value) >= 100 ? grouped(value, 0) : number(value);
}

/** Return seconds as one readable stretch: 240 µs, 15.6 s, 22 min, 4 h 40 min. */
export function duration(/** @type {number} */ seconds) {
  if (!Number.isFinite(seconds)) return "—";
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return `${grouped(seconds * 1e6, 0)} µs`;
  if (seconds < 0.1) return `${grouped(seconds * 1e3, seconds < 1e-2 ? 1 : 0)} ms`;
  if (seconds < 10) return `${grouped(seconds, 2)} s`;
  if (seconds < 100) return `${grouped(seconds, 1)} s`;
  if (seconds < 3600) return `${grouped(Math.round(seconds / 60), 0)} min`;
  const minutes = Math.round(seconds / 60);
  return `${grouped(Math.floor(minutes / 60), 0)} h ${minutes % 60} min`;
}

/** Return whole seconds without rounding, for places on an axis: 90 s, 2 min 30 s, 1 h 5 min. */
export function exactly(/** @type {number} */ seconds) {
  if (seconds < 120) return `${seconds} s`;
  const [hours, minutes, rest] = [seconds / 3600, (seconds % 3600) / 60, seconds % 60].map(Math.floor);
  return [hours && `${grouped(hours, 0)} h`, minutes && `${minutes} min`, rest && `${rest} s`]
    .filter(Boolean)
    .join(" ");
}

/** Return seconds as seconds up to a thousand, for columns that are compared: 0.45 s, 22.5 s, 227 s. */
export function seconds(/** @type {number} */ value) {
  return value >= 100 && value < 1000 ? `${grouped(value, 0)} s` : duration(value);
}

/** Return a time of day on an axis whose ticks are `step` seconds apart. */
export function timeTick(/** @type {number} */ value, /** @type {number} */ step) {
  const date = new Date(value * 1000);
  return step < 60 ? clock(date) : step < 86400 ? minute(date) : dayFormat.format(date);
}

/** Return a metric's value with its unit, as the dictionary of metrics names it. */
export function metric(/** @type {Value} */ value, /** @type {string} */ unit) {
  if (value === null || value === undefined) return "—";
  if (!Number.isFinite(value)) return number(value);
  if (unit === "share") return `${percent(value * 100)} %`;
  if (unit === "%") return `${percent(value)} %`;
  if (unit === "bytes") return bytes(value);
  if (unit === "s") return duration(value);
  if (unit === "tok/s") return `${short(value)} tok/s`;
  return number(value);
}

function percent(/** @type {number} */ value) {
  const size = Math.abs(value);
  const digits = size < 0.01 ? 1 : size < 1 ? 2 : 3; // of a share this small more digits would be false ones
  return minus(String(Number(value.toPrecision(digits))));
}

/** Return the unit of a series that no dictionary names: readings end in theirs. */
export function unitOf(/** @type {string} */ name) {
  if (name.endsWith("_bytes")) return "bytes";
  if (name.endsWith("_percent")) return "%";
  if (name.endsWith("_seconds")) return "s";
  return name.endsWith("_share") ? "share" : "";
}

/** Return true if `metric` writes the unit into every number, so that a title need not. */
export const isInNumbers = (/** @type {string} */ unit) => ["share", "%", "bytes", "s", "tok/s"].includes(unit);

/** Return the labels of the ticks of a y axis: as short as tells them apart. */
export function ticks(/** @type {(number | null)[]} */ values, /** @type {string} */ unit) {
  const short = values.map((value) => tick(value, unit));
  const said = short.filter(Boolean);
  return new Set(said).size === said.length ? short : values.map((value) => tick(value, unit, 6));
}

/** Return the label of a tick on a y axis, short; of a number below a thousandth with so many digits. */
export function tick(/** @type {number | null} */ value, /** @type {string} */ unit, digits = 2) {
  if (value === null) return "";
  if (unit === "share") return `${trim(value * 100, digits)}%`;
  if (unit === "%") return `${trim(value, digits)}%`;
  if (unit === "s")
    return value !== 0 && Math.abs(value) < 0.01 ? `${trim(value * 1e3, digits)} ms` : `${trim(value, digits)} s`;
  if (unit === "bytes") return bytes(value).replace(/\.0(?= )/, "");
  return Math.abs(value) >= 1e4 && digits < 3 ? short(value).replace(".0", "") : trim(value, digits);
}

function trim(/** @type {number} */ value, /** @type {number} */ digits) {
  if (value === 0) return "0";
  if (Math.abs(value) < 1e-3) return minus(Number(value.toPrecision(digits)).toExponential());
  return minus(String(Number(value.toPrecision(6))));
}

const clockFormat = new Intl.DateTimeFormat(lang, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const minuteFormat = new Intl.DateTimeFormat(lang, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat(lang, { day: "numeric", month: "short" });
const dateFormat = new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "medium" });

/** Return the time of day of a Date. */
export const clock = (/** @type {Date} */ date) => clockFormat.format(date);
/** Return hours and minutes of a Date. */
export const minute = (/** @type {Date} */ date) => minuteFormat.format(date);
/** Return date and time of a Date, for titles. */
export const moment = (/** @type {Date} */ date) => dateFormat.format(date);
