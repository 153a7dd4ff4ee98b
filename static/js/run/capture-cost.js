/** What a capture will cost, before it is asked for: in a sentence, and whether the disks have the space. */

import { bytes, fill, gettext, ngettext } from "../format.js";

const SHORT = 0.05; // seconds that nobody notices
const SLOWER = 1.02; // below this a recorded step takes as long as its neighbours

/** Return {text, isTooLarge} of a capture of so many workers. */
export function costOf({ costs, freeBytes, clusterFreeBytes, tool, workers, steps, seconds }) {
  const cost = costs.find((one) => one.tool === tool);
  const each = cost && (seconds ? cost.second_bytes : cost.step_bytes);
  const free = { here: bytes(freeBytes), there: clusterFreeBytes === null ? "" : bytes(clusterFreeBytes) };
  const disks = fill(
    free.there
      ? gettext("Free: %(here)s on the console's disk, %(there)s on the run's on the cluster.")
      : gettext("Free: %(here)s on the console's disk."),
    free,
  );
  if (!cost || each === null || workers === 0)
    return { text: `${gettext("How large its files get is not known yet.")} ${disks}`, isTooLarge: false };
  const size = each * workers * (seconds || steps);
  const isTooLarge = size > Math.min(freeBytes, clusterFreeBytes ?? Infinity);
  const parts = [fill(gettext("Files of about %(size)s"), { size: bytes(size) })];
  if (cost.stall_seconds !== null && cost.stall_seconds >= SHORT)
    parts.push(fill(gettext("the run pauses for about %(n)s s"), { n: cost.stall_seconds.toFixed(1) }));
  if (cost.slowdown !== null && cost.slowdown > SLOWER)
    parts.push(fill(gettext("recorded steps take %(n)s times as long"), { n: cost.slowdown.toFixed(2) }));
  const source = cost.captures
    ? fill(ngettext("by %(n)s capture before", "by %(n)s captures before", cost.captures), { n: cost.captures })
    : gettext("measured on the bundled model; larger models make larger files");
  const advice = isTooLarge
    ? ` ${gettext("That is too little: record fewer steps or workers, or free some space.")}`
    : "";
  return { text: `${parts.join(", ")} (${source}). ${disks}${advice}`, isTooLarge };
}
