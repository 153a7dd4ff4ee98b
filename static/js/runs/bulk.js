// Verbs on many runs: sent in parts, with what undoes them.

import { csrfHeaders, fill, gettext, ngettext } from "../format.js";
import { toast } from "../toast.js";

/** How many runs one request takes. */
export const AT_ONCE = 500;

/** @typedef {{ verb: string, tags: string[], ids: string[] }} Step */

/**
 * Send a form; `isOk` is false where the console says what is wrong.
 *
 * @param {string} url
 * @param {Record<string, string>} fields
 */
export async function post(url, fields) {
  const body = new URLSearchParams(fields);
  const answer = await fetch(url, { method: "POST", body, headers: { ...csrfHeaders(), Accept: "application/json" } });
  if (answer.status !== 422 && !answer.ok) throw new Error(String(answer.status));
  return { isOk: answer.ok, data: await answer.json() };
}

/** Say that the console is away. */
export function sayAway() {
  toast(gettext("The console does not answer. What was not done yet is left as it is; try again in a moment."), {
    isError: true,
  });
}

/**
 * Do the steps, and return the ids that were changed, the steps back, and the line that says what was done.
 *
 * @param {Step[]} steps
 * @returns {Promise<{ done: string[], undo: Step[], text: string }>}
 */
export async function doSteps(steps) {
  const parts = steps.flatMap(({ ids, ...step }) =>
    Array.from({ length: Math.ceil(ids.length / AT_ONCE) }, (_part, i) => ({
      ...step,
      ids: ids.slice(i * AT_ONCE, (i + 1) * AT_ONCE),
    })),
  );
  const total = parts.reduce((sum, { ids }) => sum + ids.length, 0);
  /** @type {string[]} */
  const done = [];
  /** @type {Step[]} */
  const undo = [];
  /** @type {string[]} */
  const refused = [];
  let text = "";
  let sent = 0;
  let close = () => {};
  try {
    for (const { verb, tags, ids } of parts) {
      close();
      if (parts.length > 1) close = toast(fill(gettext("%(sent)s of %(total)s runs …"), { sent, total }));
      const { isOk, data } = await post("/runs/change", { verb, ids: ids.join(","), tags: tags.join(" ") });
      if (!isOk) {
        toast(data.problem, { isError: true });
        break;
      }
      done.push(...data.done);
      undo.unshift(...data.undo);
      refused.push(...data.refused.map(({ message }) => message));
      sent += ids.length;
      text = data.text;
    }
  } catch {
    sayAway();
  }
  close();
  for (const message of refused.slice(0, 3)) toast(message, { isError: true });
  if (refused.length > 3) {
    const more = ngettext("%(n)s further run refused", "%(n)s further runs refused", refused.length - 3);
    toast(fill(more, { n: refused.length - 3 }), { isError: true });
  }
  if (parts.length > 1)
    text = fill(ngettext("%(n)s run changed", "%(n)s runs changed", done.length), { n: done.length });
  return { done, undo, text };
}
