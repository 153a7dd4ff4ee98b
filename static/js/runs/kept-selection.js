/** The selection of the list of runs while its page is left: *back* and a reload show it again, a link to the list does not. */

const PLACE = "pitwall-runs-selection";

/** @typedef {{ ids: string[], live: string[], query: string }} Every every run that a filter leaves */

export function keepSelection(/** @type {{ ids: string[], all: Every | null }} */ selection) {
  try {
    if (selection.ids.length) sessionStorage.setItem(PLACE, JSON.stringify(selection));
    else sessionStorage.removeItem(PLACE);
  } catch {
    // a browser that keeps nothing: it holds until the page is left
  }
}

/** @returns {{ ids: string[], all: Every | null }} */
export function keptSelection() {
  const [entry] = performance.getEntriesByType("navigation");
  try {
    const kept = sessionStorage.getItem(PLACE);
    if (kept && entry instanceof PerformanceNavigationTiming && entry.type !== "navigate") return JSON.parse(kept);
  } catch {
    // as above
  }
  return { ids: [], all: null };
}
