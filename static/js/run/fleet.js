/** Nodes, devices and processes at one time, and the lines or bands of many of them over time. */

/**
 * @typedef {(number | null)[]} Values
 * @typedef {{ kind: string, node: number, device: number, role: string, rank: number, utilization: Values,
 *   memory_bytes: Values, memory_share: Values }} Lane
 * @typedef {{ kind: string, measure: string, low: Values, middle: Values, high: Values }} Band
 * @typedef {"utilization" | "memory_share"} Measure
 * @typedef {{ role: string, planned: number | null, measured: number | null,
 *   within: { role: string, measured: number } | null }} RoleMemory
 * @typedef {{ node: number, cpu: Lane | null, devices: (Lane | null)[], processes: Lane[] }} Row
 */

export const MOST_LINES = 64; // more lanes are drawn as a band

/**
 * Return a row for each node: its own lane, its devices by number (null where it has none of that number), and the
 * processes on it. Processes whose node nobody knows stand last, as node -1.
 *
 * @param {Lane[]} lanes
 * @returns {Row[]}
 */
export function rowsOf(lanes) {
  const numDevices = 1 + Math.max(-1, ...lanes.map(({ device }) => device));
  /** @type {Map<number, Row>} */
  const rows = new Map();
  for (const lane of lanes) {
    let row = rows.get(lane.node);
    if (!row) {
      row = { node: lane.node, cpu: null, devices: Array(numDevices).fill(null), processes: [] };
      rows.set(lane.node, row);
    }
    if (lane.kind === "node") row.cpu = lane;
    else if (lane.kind === "device") row.devices[lane.device] = lane;
    else row.processes.push(lane);
  }
  return [...rows.values()].sort((a, b) => (a.node < 0 ? 1 : 0) - (b.node < 0 ? 1 : 0) || a.node - b.node);
}

/**
 * Return the kind of lanes whose course over time says most: devices where some have readings, else nodes, else processes.
 *
 * @param {Lane[]} lanes
 * @param {Measure} measure
 * @returns {string}
 */
export function drawnKind(lanes, measure) {
  const has = (/** @type {string} */ kind) =>
    lanes.some((lane) => lane.kind === kind && lane[measure].some((value) => value !== null));
  return ["device", "node", "process"].find(has) ?? "";
}

/**
 * Return the pieces of a line in a box of `width` × `height`, shares from 0 below to `most` above; gaps part them.
 *
 * @param {Values} values
 * @param {{ width: number, height: number, most?: number }} box
 * @returns {[number, number][][]}
 */
function piecesOf(values, { width, height, most = 1 }) {
  /** @type {[number, number][][]} */
  const pieces = [];
  let isOpen = false;
  values.forEach((value, at) => {
    if (value === null) {
      isOpen = false;
      return;
    }
    if (!isOpen) pieces.push([]);
    isOpen = true;
    const x = values.length > 1 ? (at / (values.length - 1)) * width : width / 2;
    pieces.at(-1)?.push([x, height - Math.min(1, Math.max(0, value / most)) * height]);
  });
  return pieces;
}

/** Return the path of a line. */
export const linePath = (/** @type {Values} */ values, /** @type {{ width: number, height: number }} */ box) =>
  piecesOf(values, box).map(path).join("");

/** Return the path of the area between two lines that have their gaps at the same places. */
export function areaPath(
  /** @type {Values} */ low,
  /** @type {Values} */ high,
  /** @type {{ width: number, height: number }} */ box,
) {
  const below = piecesOf(low, box);
  return piecesOf(high, box)
    .map((piece, at) => `${path([...piece, ...(below[at] ?? []).slice().reverse()])}Z`)
    .join("");
}

const path = (/** @type {[number, number][]} */ points) =>
  points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/**
 * Return for each role the most memory that was planned and measured over its phases, in the order of the rows. Where none was
 * measured of a role, `within` is another one whose processes were, in the same phases: its work was done in those.
 *
 * @param {{ quantity: string, phase: string, role: string, term: string, predicted: { middle: number } | null, measured: number | null }[]} rows of
 *     the run's plan
 * @returns {RoleMemory[]}
 */
export function plannedMemory(rows) {
  const peaks = rows.filter(({ quantity, term, role }) => quantity === "bytes" && !term && role);
  return [...new Set(peaks.map(({ role }) => role))].map((role) => {
    const own = peaks.filter((row) => row.role === role);
    const phases = new Set(own.map(({ phase }) => phase));
    const others = peaks.filter((row) => row.role !== role && row.measured !== null && phases.has(row.phase));
    const measured = own.map((row) => row.measured).reduce(most, null);
    const inOther = others.map((row) => row.measured).reduce(most, null);
    const within = measured === null && inOther !== null ? { role: others[0].role, measured: inOther } : null;
    return { role, planned: own.map((row) => row.predicted?.middle ?? null).reduce(most, null), measured, within };
  });
}

/**
 * Return whether memory was planned for roles, and the run tells no peaks to stand beside it.
 *
 * @param {{ quantity: string, role: string, term: string, not_measured: string }[]} rows of the run's plan
 */
export function lacksPeaks(rows) {
  const peaks = rows.filter((row) => row.quantity === "bytes" && !row.term && row.role);
  return peaks.length > 0 && peaks.every((row) => row.not_measured === "no_peaks");
}

/** @returns {number | null} */
const most = (/** @type {number | null} */ one, /** @type {number | null} */ other) =>
  one === null ? other : other === null ? one : Math.max(one, other);
