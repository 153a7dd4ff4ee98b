/** The lanes of a trace: those of the run's phases, and those of each file, by process. */

import { fill, gettext, grouped, laneName } from "../format.js";
import { sorted } from "./rows.js";
import { Tiles } from "./tiles.js";

/** @import { Clock } from "./clock.js" */
/** @import { Step } from "./facts.js" */
/** @import { Group } from "./layout.js" */
/** @import { Phase } from "./rows.js" */
/**
 * @typedef {object} PhaseColumns of one worker, as GET .../phases gives them
 * @property {string} role
 * @property {number} rank
 * @property {string[]} start in Unix ns
 * @property {(string | number)[]} duration in ns
 * @property {number[]} depth
 * @property {number[]} phase numbers into the answer's phases
 * @property {string[]} name
 * @property {number[]} step
 */
/** @typedef {{ start: number[], end: number[], name: number[], id: number[], about: Phase[], names: Map<string, number> }} Columns of a row */
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
const ORDER = ["driver", "policy", "critic", "reference", "reward", "vllm", "runner"];
const PHASE = 2; // the category

/**
 * Return the phases as a group, with their steps; no group without any.
 *
 * @param {{ phases: string[], lanes: PhaseColumns[] }} answer
 * @param {Clock} clock
 * @returns {{ group: Group | null, steps: Step[] }}
 */
export function phaseGroup(answer, clock) {
  /** @type {Map<string, { role: string, rank: number, depths: Columns[] }>} */
  const lanes = new Map();
  /** @type {Map<number, [begin: number, end: number]>} */
  const steps = new Map();
  for (const column of answer.lanes) {
    const { role, rank } = column;
    const id = `${role}|${rank}`;
    const lane = lanes.get(id) ?? { role, rank, depths: [] };
    lanes.set(id, lane);
    const { depths } = lane;
    for (let i = 0; i < column.start.length; i += 1) {
      const depth = column.depth[i];
      depths[depth] ??= { start: [], end: [], name: [], id: [], about: [], names: new Map() };
      const rows = depths[depth];
      const begin = clock.offset(column.start[i]);
      const end = begin + Number(column.duration[i]);
      const phase = answer.phases[column.phase[i]];
      const text = `${phase}|${column.name[i]}`;
      const name = rows.names.get(text) ?? rows.names.size;
      rows.names.set(text, name);
      rows.start.push(begin);
      rows.end.push(end);
      rows.name.push(name);
      rows.id.push(-1);
      rows.about.push({ phase, step: column.step[i], name: column.name[i] });
      if (depth === 0 && column.step[i] > 0) widen(steps, column.step[i], begin, end);
    }
  }
  const found = [...lanes.values()].sort((a, b) => place(a.role) - place(b.role) || a.rank - b.rank);
  const group = {
    key: "phases",
    title: gettext("Phases"),
    note: gettext("measured by the run itself"),
    lanes: found.map((lane) => ({
      key: `phase-${lane.role}-${lane.rank}`,
      title: laneName(lane),
      kind: "phase",
      depths: lane.depths.length,
      rows: Array.from(lane.depths, (rows) => rows && sorted({ ...rows, table: tableOf(rows.names) })),
    })),
  };
  return {
    group: found.length ? group : null,
    steps: [...steps].sort(([a], [b]) => a - b).map(([number, [begin, end]]) => ({ number, begin, end })),
  };
}

const place = (/** @type {string} */ role) => ORDER.indexOf(role) + 1 || ORDER.length + 1;

function tableOf(/** @type {Map<string, number>} */ names) {
  const keys = [...names.keys()].map((text) => text.split("|"));
  return { names: keys.map(([phase]) => phase), cats: keys.map(() => PHASE), labels: keys.map(([, name]) => name) };
}

/**
 * Let a step reach over [begin, end].
 *
 * @param {Map<number, [begin: number, end: number]>} steps
 * @param {number} number
 * @param {number} begin
 * @param {number} end
 */
function widen(steps, number, begin, end) {
  const known = steps.get(number);
  steps.set(number, known ? [Math.min(known[0], begin), Math.max(known[1], end)] : [begin, end]);
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
  for (const { lanes } of processes.values())
    lanes.sort(
      (a, b) =>
        KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) ||
        a.device - b.device ||
        a.stream - b.stream ||
        b.events - a.events,
    );
  const tiles = new Tiles({
    url: `${api}/layers/${layer.id}`,
    made: layer.made,
    origin: clock.offset(layer.origin),
    lanes: [...processes.values()].flatMap(({ lanes }) => lanes),
  });
  const who = layer.role ? laneName({ role: layer.role, rank: layer.rank ?? 0 }) : "";
  const isOne = processes.size === 1;
  return [...processes].map(([id, { process, pid, lanes }]) => ({
    key: `${layer.id}-${id.replaceAll(/[^\w|-]/g, "")}`,
    title:
      who && isOne ? who : [who, processName(process, pid, processes)].filter(Boolean).join(", ") || layer.file_name,
    note: [
      layer.kind,
      fill(gettext("%(n)s events"), { n: grouped(lanes.reduce((sum, lane) => sum + lane.events, 0)) }),
      who ? "" : layer.file_name,
    ]
      .filter(Boolean)
      .join(" · "),
    layer: layer.id,
    lanes: lanes.map((lane) => ({
      key: `${layer.id}.${lane.id}`,
      id: lane.id,
      title: laneTitle(lane),
      kind: lane.kind,
      depths: Math.max(lane.depths, 1),
      events: lane.events,
      layer: layer.id,
      tiles,
      block: tiles.blockOf.get(lane.id) ?? 0,
    })),
  }));
}

/**
 * Return the name of a process, with its number where another one has the same name.
 *
 * @param {string} process
 * @param {number} pid
 * @param {Map<string, Process>} processes
 */
function processName(process, pid, processes) {
  const same = [...processes.values()].filter((other) => other.process === process).length;
  if (process && same === 1) return process;
  return process ? `${process} ${pid}` : fill(gettext("process %(pid)s"), { pid });
}

function laneTitle(/** @type {LayerLane} */ lane) {
  if (lane.title) return lane.title;
  if (lane.kind === "stream") return fill(gettext("GPU %(device)s, stream %(stream)s"), lane);
  const thread = lane.thread.replace(/ \(ray::.*\)$/, ""); // Ray calls a worker's threads after its newest call
  return thread || (lane.tid ? fill(gettext("thread %(tid)s"), lane) : lane.process || lane.kind);
}
