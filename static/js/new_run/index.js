// What is known of every knob and field of every trainer: fetched once, when somebody searches or reads.

/** @typedef {{ trainer: string, name: string, versions: string[], algorithms: string[], whose: string, why?: string }} Option of a trainer; `why` no run has to say it */
/** @typedef {{ label: string, flags: Option[], help?: string, allowed?: string, unit?: string, effects?: [name: string, text: string][], source?: string }} Known of an input; of a knob all of it */
/** @typedef {{ knobs: Record<string, Known>, fields: Record<string, Known>, told: Option[] }} KnobIndex */

/** @type {Promise<KnobIndex> | null} */
let asked = null;
/** @type {KnobIndex} */
const NOTHING = { knobs: {}, fields: {}, told: [] };

/** `knobs` and `fields` by the names of their inputs, and `told`; all empty if the console does not answer. */
export function knobIndex(form) {
  asked ??= fetch(form.dataset.index, { headers: { Accept: "application/json" } })
    .then((response) => (response.ok ? response.json() : Promise.reject(new Error(String(response.status)))))
    .catch(() => {
      asked = null; // the next one tries again
      return NOTHING;
    });
  return asked;
}

/** A name without what differs between a command line, an override and a config: dashes and marks before it. */
function plain(text) {
  return text
    .toLowerCase()
    .replace(/^[-+~]+/, "")
    .replaceAll("-", "_");
}

/** What somebody looks for; of a pasted `--option value` or `key=value` only the name counts. */
export function asQuery(text) {
  const query = text.trim().toLowerCase();
  const name = /^[-+~]/.test(query) ? query.split(/[\s=]/)[0] : query.replace(/=.*$/s, "").trim();
  return /^[-+~]*$/.test(name) ? "" : name;
}

/** How well a name answers a query: 0 is that very name, 1 its last words, 2 some part of it; null not at all. */
export function rankOf(name, query) {
  const [text, wanted] = [plain(name), plain(query)];
  if (text === wanted) return 0;
  if (text.endsWith(`.${wanted}`)) return 1;
  return text.includes(wanted) ? 2 : null;
}

/** The option that answers a query best, if one does: {trainer, name, whose, rank}. */
export function optionOf(known, query) {
  /** @type {(Option & { rank: number }) | null} */
  let best = null;
  for (const flag of known?.flags ?? []) {
    const rank = rankOf(flag.name, query);
    if (rank !== null && (best === null || rank < best.rank)) best = { ...flag, rank };
  }
  return best;
}
