/** The lanes of a trace: those of the run's phases, and those of each file, by process. */

import { EVERYTHING } from "../charts/branches.js";
import { fill, gettext, gpuName, grouped, laneName, ngettext } from "../format.js";
import { Lanes } from "../timeline/lanes.js";
import { EventRow } from "./rows.js";
import { Tiles } from "./tiles.js";

/** @import { Clock } from "../timeline/clock.js" */
/** @import { SpanColumns, SpanRow } from "../timeline/lanes.js" */
/** @import { Step } from "./facts.js" */
/** @import { Group } from "./layout.js" */
/**
 * @typedef {object} LayerLane as GET .../layers/<id> gives it
 * @property {number} id
 * @property {string} process
 * @property {number} pid
 * @property {string} kind
 * @property {number} device
 * @property {number} stream
 * @property {string} title
 * @property {string} thread
 * @property {number} tid
 * @property {number} depths
 * @property {number} events
 */
/**
 * @typedef {object} Layer
 * @property {number} id
 * @property {string | null} role
 * @property {number | null} rank
 * @property {string} kind
 * @property {string} file_name
 * @property {number | string} made
 * @property {string} origin in Unix ns
 * @property {LayerLane[]} lanes
 */
/** @typedef {{ process: string, pid: number, lanes: LayerLane[] }} Process */

const KINDS = ["phase", "range", "stream", "thread"];
const PHASE = 2; // the category
const FRAMES = "frames"; // titles of a thread's lanes of Python frames (profiling/trace/frames.py)
const INNER_FRAMES = "inner frames";
const SAMPLES = "CPU samples"; // and of what was seen of it from outside (profiling/trace/scheduling.py)
const SCHEDULING = "scheduling";
const OF_THREAD = ["", SCHEDULING, FRAMES, INNER_FRAMES, SAMPLES];

/**
 * Return the phases as a group, with their steps; no group without any.
 *
 * @param {{ phases: string[], lanes: SpanColumns[] }} answer
 * @param {Clock} clock
 * @returns {{ group: Group | null, steps: Step[] }}
 */
export function phaseGroup(answer, clock) {
  const lanes = new Lanes(EVERYTHING, clock);
  for (const column of answer.lanes) lanes.add(column, answer.phases);
  const group = {
    key: "phases",
    title: gettext("Phases"),
    note: gettext("measured by the run itself"),
    lanes: lanes.sorted.map(({ role, rank, rows }) => ({
      key: `phase-${role}-${rank}`,
      title: laneName({ role, rank }),
      kind: "phase",
      depths: rows.length,
      rows: Array.from(rows, (row) => row && eventsOf(row)),
    })),
  };
  const steps = [...lanes.steps].filter(([number]) => number > 0).sort(([a], [b]) => a - b);
  return {
    group: lanes.sorted.length ? group : null,
    steps: steps.map(([number, [begin, end]]) => ({ number, begin, end })),
  };
}

/** Return spans of the run as events of a trace. */
function eventsOf(/** @type {SpanRow} */ { start, end, phase, step, name }) {
  /** @type {Map<string, number>} */
  const numbers = new Map(); // of phase and name
  const number = (/** @type {string} */ text) => {
    numbers.set(text, numbers.get(text) ?? numbers.size);
    return numbers.get(text) ?? 0;
  };
  const named = Uint32Array.from(phase, (key, i) => number(`${key}|${name[i]}`));
  const keys = [...numbers.keys()].map((text) => text.split("|"));
  return new EventRow({
    start: Float64Array.from(start),
    end: Float64Array.from(end),
    name: named,
    id: new Float64Array(start.length).fill(-1),
    table: { names: keys.map(([key]) => key), cats: keys.map(() => PHASE), labels: keys.map(([, label]) => label) },
    about: phase.map((key, i) => ({ phase: key, step: step[i], name: name[i] })),
  });
}

/**
 * Return the groups of a layer that is ready, one per process.
 *
 * @param {Layer} layer
 * @param {Clock} clock
 * @param {string} api of the trace
 * @returns {Group[]}
 */
export function layerGroups(layer, clock, api) {
  /** @type {Map<string, Process>} */
  const processes = new Map();
  for (const lane of layer.lanes) {
    if (!lane.events) continue;
    const { process, pid } = lane;
    const id = `${process}|${pid}`;
    const known = processes.get(id) ?? { process, pid, lanes: [] };
    processes.set(id, known);
    known.lanes.push(lane);
  }
  for (const { lanes } of processes.values()) lanes.sort(order(lanes));
  const tiles = new Tiles({
    url: `${api}/layers/${layer.id}`,
    made: layer.made,
    origin: clock.offset(layer.origin),
    lanes: [...processes.values()].flatMap(({ lanes }) => lanes),
  });
  const who = layer.role ? laneName({ role: layer.role, rank: layer.rank ?? 0 }) : "";
  const isOne = processes.size === 1;
  const eventsIn = (/** @type {{ events: number }[]} */ own) => {
    const n = own.reduce((sum, lane) => sum + lane.events, 0);
    return fill(ngettext("%(n)s event", "%(n)s events", n), { n: grouped(n) });
  };
  return [...processes].map(([id, { process, pid, lanes }]) => ({
    key: `${layer.id}-${id.replaceAll(/[^\w|-]/g, "")}`,
    title:
      who && isOne ? who : [who, processName(process, pid, processes)].filter(Boolean).join(", ") || layer.file_name,
    note: [layer.kind, eventsIn(lanes), who ? "" : layer.file_name].filter(Boolean).join(" · "),
    layer: layer.id,
    lanes: lanes.map((lane) => ({
      key: `${layer.id}.${lane.id}`,
      id: lane.id,
      title: laneTitle(lane),
      kind: lane.kind,
      isQuiet: lane.title === INNER_FRAMES,
      isStack: OF_THREAD.includes(lane.title, 1),
      depths: Math.max(lane.depths, 1),
      events: lane.events,
      layer: layer.id,
      tiles,
      block: tiles.blockOf.get(lane.id) ?? 0,
    })),
  }));
}

/**
 * Return how to sort the lanes of a process: ranges, streams, then threads, the fullest first, each with its frames of Python below what
 * it does.
 *
 * @param {LayerLane[]} lanes
 * @returns {(a: LayerLane, b: LayerLane) => number}
 */
function order(lanes) {
  /** @type {Map<number, number>} events by thread, without its frames */
  const events = new Map();
  for (const lane of lanes)
    if (lane.kind === "thread" && !OF_THREAD.includes(lane.title, 1))
      events.set(lane.tid, Math.max(events.get(lane.tid) ?? 0, lane.events));
  const fullest = (/** @type {LayerLane} */ lane) =>
    lane.kind === "thread" ? (events.get(lane.tid) ?? 0) : lane.events;
  return (a, b) =>
    KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) ||
    a.device - b.device ||
    a.stream - b.stream ||
    fullest(b) - fullest(a) ||
    a.tid - b.tid ||
    OF_THREAD.indexOf(a.title) - OF_THREAD.indexOf(b.title);
}

/**
 * Return the name of a process, with its number where another one has the same name; "" where the file tells of none.
 *
 * @param {string} process
 * @param {number} pid
 * @param {Map<string, Process>} processes
 */
function processName(process, pid, processes) {
  const same = [...processes.values()].filter((other) => other.process === process).length;
  if (process && same === 1) return process;
  if (!process && pid < 0) return ""; // no one is told
  return process ? `${process} ${pid}` : fill(gettext("process %(pid)s"), { pid });
}

function laneTitle(/** @type {LayerLane} */ lane) {
  if (lane.title === FRAMES) return fill(gettext("Python, %(thread)s"), { thread: threadName(lane) });
  if (lane.title === INNER_FRAMES) return fill(gettext("inside frameworks, %(thread)s"), { thread: threadName(lane) });
  if (lane.title === SAMPLES) return fill(gettext("CPU samples, %(thread)s"), { thread: threadName(lane) });
  if (lane.title === SCHEDULING) return fill(gettext("scheduling, %(thread)s"), { thread: threadName(lane) });
  if (lane.title) return lane.title;
  if (lane.kind === "stream") {
    const gpu = gpuName(lane.device);
    return lane.stream >= 0 ? fill(gettext("%(gpu)s, stream %(stream)s"), { gpu, stream: lane.stream }) : gpu;
  }
  return threadName(lane);
}

function threadName(/** @type {LayerLane} */ lane) {
  const thread = lane.thread.replace(/ \(ray::.*\)$/, ""); // Ray calls a worker's threads after its newest call
  return thread || (lane.tid ? fill(gettext("thread %(tid)s"), lane) : lane.process || lane.kind);
}
