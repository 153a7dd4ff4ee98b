/** The lanes of a trace: those of the run's phases, and those of each file, by process. */

import { fill, gettext, grouped, laneName } from "../format.js";
import { sorted } from "./rows.js";
import { Tiles } from "./tiles.js";

const KINDS = ["phase", "range", "stream", "thread"];
const ORDER = ["driver", "policy", "critic", "reference", "reward", "vllm", "runner"];
const PHASE = 2; // the category

/** Return { group, steps } of the phases as GET .../phases gives them; no group without any. */
export function phaseGroup(answer, clock) {
  const lanes = new Map();
  const steps = new Map();
  for (const column of answer.lanes) {
    const id = `${column.role}|${column.rank}`;
    if (!lanes.has(id)) lanes.set(id, { role: column.role, rank: column.rank, depths: [] });
    const { depths } = lanes.get(id);
    for (let i = 0; i < column.start.length; i += 1) {
      const depth = column.depth[i];
      depths[depth] ??= { start: [], end: [], name: [], id: [], about: [], names: new Map() };
      const rows = depths[depth];
      const begin = clock.offset(column.start[i]);
      const end = begin + Number(column.duration[i]);
      const phase = answer.phases[column.phase[i]];
      const text = `${phase}|${column.name[i]}`;
      if (!rows.names.has(text)) rows.names.set(text, rows.names.size);
      rows.start.push(begin);
      rows.end.push(end);
      rows.name.push(rows.names.get(text));
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

const place = (role) => ORDER.indexOf(role) + 1 || ORDER.length + 1;

function tableOf(names) {
  const keys = [...names.keys()].map((text) => text.split("|"));
  return { names: keys.map(([phase]) => phase), cats: keys.map(() => PHASE), labels: keys.map(([, name]) => name) };
}

function widen(steps, number, begin, end) {
  const known = steps.get(number);
  steps.set(number, known ? [Math.min(known[0], begin), Math.max(known[1], end)] : [begin, end]);
}

/** Return the groups of a ready layer (GET .../layers/<id>), one per process. */
export function layerGroups(layer, clock, api) {
  const processes = new Map();
  for (const lane of layer.lanes) {
    if (!lane.events) continue;
    const id = `${lane.process}|${lane.pid}`;
    if (!processes.has(id)) processes.set(id, { process: lane.process, pid: lane.pid, lanes: [] });
    processes.get(id).lanes.push(lane);
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
      block: tiles.blockOf.get(lane.id),
    })),
  }));
}

/** Return the name of a process, with its number where another one has the same name. */
function processName(process, pid, processes) {
  const same = [...processes.values()].filter((other) => other.process === process).length;
  if (process && same === 1) return process;
  return process ? `${process} ${pid}` : fill(gettext("process %(pid)s"), { pid });
}

function laneTitle(lane) {
  if (lane.title) return lane.title;
  if (lane.kind === "stream") return fill(gettext("GPU %(device)s, stream %(stream)s"), lane);
  const thread = lane.thread.replace(/ \(ray::.*\)$/, ""); // Ray calls a worker's threads after its newest call
  return thread || (lane.tid ? fill(gettext("thread %(tid)s"), lane) : lane.process || lane.kind);
}
