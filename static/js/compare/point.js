/** Which step of each run stands at a place of a chart. */

import { get } from "../api.js";

/** Return { run, step, value } of each run where x of the axis is; the metric's value is the newest at or before that step. */
export async function pointsAt({ runs, metric, x, axis }, signal) {
  const query = new URLSearchParams({ runs: runs.map((run) => run.id).join(","), metric, at: String(x), x: axis });
  const { runs: points } = await get(`/api/compare/point?${query}`, { signal });
  return points.map((point) => ({ ...point, run: runs.find((run) => run.id === point.run) }));
}
