/** The machines of a run: a heat map of nodes, devices and processes at one time, and how they came there. */

import { get } from "../api.js";
import { clock, metric } from "../charts/numbers.js";
import { field, find } from "../dom.js";
import { el, fill, gettext, laneName, messageOf, ngettext, write } from "../format.js";
import { toast } from "../toast.js";
import { areaPath, drawnKind, lacksPeaks, linePath, MOST_LINES, plannedMemory, rowsOf } from "./fleet.js";

/** @import { Lane, Measure, RoleMemory } from "./fleet.js" */

const EVERY_MS = 5000;
const BOX = { width: 1000, height: 120 };
const SVG = "http://www.w3.org/2000/svg";

export class SystemTab {
  constructor({ page, query }) {
    this.page = page;
    this.query = query;
    this.fleet = null;
    this.isLatest = true;
    this.timer = 0;
    this.state = page.header.state;
    this.measure = find("select[data-system-measure]");
    this.measure.value = query.get("measure") === "memory_share" ? "memory_share" : "utilization";
    this.measure.addEventListener("change", () => {
      this.query.set("measure", this.measure.value === "utilization" ? "" : this.measure.value);
      this.#draw();
    });
    this.slider = find("input[data-system-time]");
    this.slider.addEventListener("input", () => {
      this.isLatest = this.slider.value === this.slider.max;
      this.#draw();
    });
    find("button[data-system-latest]").addEventListener("click", () => {
      this.isLatest = true;
      this.#draw();
    });
    /** @type {(point: { x: number, axis: string }) => Promise<boolean>} opens the step at a Unix time in seconds */
    this.onPick = async () => false;
    find("button[data-system-step]").addEventListener("click", () => this.#pick());
    const course = find("svg[data-system-course]");
    course.addEventListener("click", (event) => {
      const { left, width } = course.getBoundingClientRect();
      this.slider.value = String(Math.round(((event.clientX - left) / width) * Number(this.slider.max)));
      this.isLatest = this.slider.value === this.slider.max;
      this.#draw();
      this.#pick();
    });
  }

  async show() {
    if (!this.fleet) this.#plan();
    await this.#read();
  }

  update(header) {
    this.state = header.state;
  }

  /** Open the step at the time that is shown. */
  async #pick() {
    const moment = Number(BigInt(this.fleet.times[Number(this.slider.value)]) / 1_000_000n) / 1000;
    if (!(await this.onPick({ x: moment, axis: "time" }))) toast(gettext("No step was under way at that time."));
  }

  get #isShown() {
    return !find('[data-panel="system"]').hidden;
  }

  async #read() {
    clearTimeout(this.timer);
    try {
      this.fleet = await get(`${this.page.api}/system`);
      this.#draw();
    } catch (error) {
      this.#empty(messageOf(error), () => this.#read());
    }
    if (["running", "stopping"].includes(this.state))
      this.timer = window.setTimeout(() => this.#isShown && !document.hidden && this.#read(), EVERY_MS);
  }

  /** @param {string} sentence @param {() => void} [again] */
  #empty(sentence, again) {
    const empty = field("system-empty");
    empty.hidden = !sentence;
    find("[data-system-body]").hidden = Boolean(sentence);
    empty.replaceChildren(
      el("p", {}, sentence),
      ...(again ? [el("button", { class: "btn", type: "button", onclick: again }, gettext("Try again"))] : []),
    );
  }

  #draw() {
    const { times, lanes } = this.fleet ?? { times: [], lanes: [] };
    if (!times.length) {
      const waits = this.state === "queued" || this.state === "starting";
      this.#empty(
        waits
          ? gettext("It has not started. Readings of its machines appear here.")
          : gettext("No reading of its machines has come."),
      );
      return;
    }
    this.#empty("");
    this.slider.max = String(times.length - 1);
    if (this.isLatest) this.slider.value = this.slider.max;
    const at = Number(this.slider.value);
    const moment = clock(new Date(Number(BigInt(times[at]) / 1_000_000n)));
    write(field("system-time"), this.isLatest ? fill(gettext("latest, %(time)s"), { time: moment }) : moment);
    this.slider.setAttribute("aria-valuetext", moment);
    this.#grid(lanes, at);
    this.#course(lanes, at);
  }

  /** Draw the heat map: a row for each node. */
  #grid(lanes, at) {
    const measure = /** @type {Measure} */ (this.measure.value);
    const rows = rowsOf(lanes);
    const numDevices = rows[0]?.devices.length ?? 0;
    const hasProcesses = measure === "memory_share" && rows.some(({ processes }) => processes.length);
    const head = [
      gettext("Node"),
      measure === "utilization" ? gettext("CPU") : gettext("Host memory"),
      ...Array.from({ length: numDevices }, (_, device) => fill(gettext("Device %(n)s"), { n: device })),
      ...(hasProcesses ? [gettext("Processes")] : []),
    ];
    find("[data-system-head]").replaceChildren(...head.map((text) => el("th", { scope: "col" }, text)));
    find("[data-system-rows]").replaceChildren(
      ...rows.map((row) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, this.#nodeName(row.node)),
          ...[row.cpu, ...row.devices].map((lane) => el("td", {}, ...(lane ? [cell(lane, measure, at)] : []))),
          ...(hasProcesses
            ? [el("td", { class: "system-processes" }, ...row.processes.map((p) => cell(p, measure, at)))]
            : []),
        ),
      ),
    );
  }

  #nodeName(node) {
    if (node < 0) return gettext("not known where");
    const name = this.fleet.node_names[node] ?? "";
    if (node === 0) return name || gettext("Runner's node");
    return name || fill(gettext("Node %(n)s"), { n: node });
  }

  /** Draw how all lanes of a kind came here: lines, or a band where there are many. */
  #course(lanes, at) {
    const measure = /** @type {Measure} */ (this.measure.value);
    const kind = drawnKind(lanes, measure);
    const own = lanes.filter((lane) => lane.kind === kind);
    const band = this.fleet.bands.find((one) => one.kind === kind && one.measure === measure);
    const isBand = own.length > MOST_LINES && band;
    const words = {
      device: ngettext("%(n)s device", "%(n)s devices", own.length),
      node: ngettext("%(n)s node", "%(n)s nodes", own.length),
      process: ngettext("%(n)s process", "%(n)s processes", own.length),
    };
    const count = kind ? fill(words[kind], { n: own.length }) : "";
    const now = (values) => metric(values[at], "share");
    const bandNow = band
      ? fill(gettext("least %(low)s, median %(middle)s, most %(high)s"), {
          low: now(band.low),
          middle: now(band.middle),
          high: now(band.high),
        })
      : "";
    write(field("system-course"), [count, bandNow].filter(Boolean).join(": "));
    const drawn = isBand
      ? [path(areaPath(band.low, band.high, BOX), "system-band"), path(linePath(band.middle, BOX), "system-line")]
      : own.map((lane) => path(linePath(lane[measure], BOX), "system-line"));
    const x = this.fleet.times.length > 1 ? (at / (this.fleet.times.length - 1)) * BOX.width : BOX.width / 2;
    find("svg[data-system-course]").replaceChildren(...drawn, path(`M${x.toFixed(1)} 0V${BOX.height}`, "system-now"));
  }

  /** Say what memory was planned for each role, beside what was measured. */
  async #plan() {
    const place = find("[data-system-plan]");
    try {
      const { rows } = await get(`${this.page.api}/plan`);
      const roles = plannedMemory(rows);
      place.replaceChildren(
        ...roles.map(({ role, planned, measured }) => {
          const share = planned && measured !== null ? measured / planned : null;
          const cells = [metric(planned, "bytes"), metric(measured, "bytes"), metric(share, "share")];
          return el(
            "tr",
            {},
            el("th", { scope: "row" }, role),
            ...cells.map((text) => el("td", { class: "num" }, text)),
          );
        }),
      );
      const isUntold = lacksPeaks(rows);
      const unmeasured = isUntold ? [] : roles.filter((role) => role.planned !== null && role.measured === null);
      find("[data-system-plan-notes]").replaceChildren(...unmeasured.map((role) => el("p", {}, whyUnmeasured(role))));
      const problem = !roles.length
        ? gettext("Nothing was planned or measured of its roles.")
        : isUntold
          ? gettext("The run does not report how much memory its roles take at most. What each process holds is above.")
          : "";
      field("system-plan-problem").hidden = !problem;
      write(field("system-plan-problem"), problem);
    } catch (error) {
      field("system-plan-problem").hidden = false;
      write(field("system-plan-problem"), messageOf(error));
    }
  }
}

/** Say why nothing stands beside the plan of a role. */
function whyUnmeasured(/** @type {RoleMemory} */ { role, within }) {
  return within
    ? fill(
        gettext("%(role)s: its work was done in the processes of %(other)s, which took at most %(memory)s meanwhile."),
        {
          role,
          other: within.role,
          memory: metric(within.measured, "bytes"),
        },
      )
    : fill(gettext("%(role)s: no reading of its memory has come."), { role });
}

/** @param {Lane} lane @param {Measure} measure @param {number} at */
function cell(lane, measure, at) {
  const share = lane[measure][at] ?? null;
  const bytes = lane.memory_bytes[at] ?? null;
  const isProcess = lane.kind === "process";
  const text = isProcess && bytes !== null ? metric(bytes, "bytes") : metric(share, "share");
  const title = measure === "memory_share" && bytes !== null ? metric(bytes, "bytes") : "";
  const node = el(
    "span",
    { class: "system-cell num", title, "data-unread": share === null },
    isProcess ? `${laneName(lane)} ${text}` : text,
  );
  node.style.setProperty("--heat", String(share ?? 0));
  return node;
}

function path(d, name) {
  const node = document.createElementNS(SVG, "path");
  node.setAttribute("d", d);
  node.setAttribute("class", name);
  return node;
}
