/** What is said of a stretch of a trace: wall time, its steps, how busy each device was. */

import { fill, gettext, grouped } from "../format.js";
import { span } from "./times.js";

/** @import { Stretch } from "../timeline/window.js" */
/** @typedef {{ number: number, begin: number, end: number }} Step */
/**
 * @typedef {object} Device what a device did, in ns
 * @property {number} layer that measured it
 * @property {number} device
 * @property {number} busy
 * @property {number} communication
 * @property {number} overlapped of the communication
 * @property {number} kernels how many
 * @property {number} median_kernel
 * @property {number} longest_gap
 */

/** Return the selection, or else what of the trace is on the screen. */
export function windowOf(/** @type {{ selection: Stretch | null, view: Stretch, extent: Stretch }} */ view) {
  if (view.selection) return view.selection;
  const { from, to } = view.view;
  return { from: Math.max(from, view.extent.from), to: Math.min(to, view.extent.to) };
}

/**
 * Return rows of [name, value, more]; a name that begins with a space is a part of the one above.
 *
 * @param {Stretch} window
 * @param {{ steps: Step[], devices: Device[], nameOf: (device: Device) => string }} known
 */
export function facts({ from, to }, { steps, devices, nameOf }) {
  const wall = to - from;
  const share = (/** @type {number} */ part, whole = wall) =>
    whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "—";
  const rows = [[gettext("Wall"), span(wall), ""]];
  const inside = steps.filter(({ begin, end }) => begin < to && end > from).map(({ number }) => number);
  if (inside.length)
    rows.push([
      inside.length > 1 ? gettext("Steps") : gettext("Step"),
      inside.length > 1 ? `${inside[0]}–${inside.at(-1)}` : String(inside[0]),
      "",
    ]);
  for (const device of devices) {
    const name = nameOf(device);
    rows.push([fill(gettext("Busy, %(device)s"), { device: name }), span(device.busy), share(device.busy)]);
    if (device.communication) {
      rows.push([`  ${gettext("communication")}`, span(device.communication), share(device.communication)]);
      rows.push([
        `  ${gettext("of it overlapped")}`,
        span(device.overlapped),
        share(device.overlapped, device.communication),
      ]);
    }
    if (device.kernels)
      rows.push([
        `  ${gettext("kernels")}`,
        grouped(device.kernels),
        fill(gettext("median %(time)s"), { time: span(device.median_kernel) }),
      ]);
    rows.push([`  ${gettext("longest gap")}`, span(device.longest_gap), ""]);
  }
  return rows;
}
