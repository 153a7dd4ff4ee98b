/** Where else a moment of a trace can be seen: the run's charts, logs and samples of that time. */

import { el, fill, gettext } from "../format.js";

/** @import { Clock } from "../timeline/clock.js" */
/** @import { Step } from "./facts.js" */

/**
 * Return links to the run's pages at [from, to) (ns after the clock's origin), [] for a trace without a run or a clock.
 *
 * @param {{ page: { runUrl: string, trace: { has_clock: boolean } }, clock: Clock, view: { steps: Step[] } }} context
 * @param {number} from
 * @param {number} to
 */
export function runLinks({ page, clock, view }, from, to) {
  const { runUrl } = page;
  if (!runUrl || !page.trace.has_clock) return [];
  const inside = view.steps.filter(({ begin, end }) => begin < to && end > from);
  const [step, last] = [inside[0]?.number, inside.at(-1)?.number];
  const seconds = (/** @type {number} */ offset) => (clock.date(offset).getTime() / 1000).toFixed(3);
  const charts =
    step === undefined
      ? `${runUrl}/charts?x=time&zoom=${seconds(from)}_${seconds(to)}`
      : `${runUrl}/charts?zoom=${Math.max(step - 1, 0)}_${(last ?? step) + 1}`;
  const links = [
    [gettext("Charts"), charts],
    [gettext("Logs"), `${runUrl}/logs?at=${clock.absolute(from)}`],
  ];
  if (step !== undefined) links.push([gettext("Samples"), `${runUrl}/samples?step=${step}`]);
  const at =
    step === undefined ? gettext("The run at this time:") : fill(gettext("The run at step %(step)s:"), { step });
  return [el("span", { class: "faint small" }, at), ...links.map(([text, href]) => el("a", { href }, text))];
}
