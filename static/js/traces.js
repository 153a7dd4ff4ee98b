/** The list of traces, and uploads: several files at once as one trace, each sent in pieces, so that a broken connection costs a piece. */

import { send } from "./api.js";
import { find, jsonOf } from "./dom.js";
import { onDrop } from "./drop.js";
import { bytes, csrfHeaders, el, fill, gettext, messageOf } from "./format.js";

const RETRIES = 6;
const page = jsonOf("traces-page");

class Upload {
  constructor(files) {
    this.files = files;
    this.isStopped = false;
    this.rows = files.map((file) => {
      const meter = el("progress", {
        class: "meter",
        max: file.size || 1,
        value: 0,
        "aria-label": fill(gettext("Sent of %(name)s"), { name: file.name }),
      });
      const text = el("span", { class: "num faint nowrap" }, bytes(file.size));
      return {
        meter,
        text,
        node: el("li", {}, el("span", { class: "mono cut", title: file.name }, file.name), meter, text),
      };
    });
  }

  async run() {
    const list = find("[data-sending]");
    list.replaceChildren(...this.rows.map(({ node }) => node));
    list.hidden = find("[data-sending-verbs]").hidden = false;
    const about = { files: this.files.map(({ name, size }) => ({ name, size })) };
    const trace = await send("POST", `${page.api}?project=${encodeURIComponent(page.project)}`, about);
    this.trace = trace;
    for (const [i, layer] of trace.layers.entries()) await this.#send(trace, layer, this.files[i], this.rows[i]);
    location.href = trace.url;
  }

  async #send(trace, layer, file, row) {
    let offset = 0;
    let tries = 0;
    while (offset < file.size) {
      if (this.isStopped) throw new Error(gettext("The upload was stopped."));
      const answer = await this.#piece(
        `${page.api}/${trace.id}/layers/${layer.id}/content?offset=${offset}`,
        file.slice(offset, offset + page.pieceBytes),
      );
      if (answer.ok) {
        offset = answer.body.received;
        tries = 0;
      } else if (answer.status === 409 || answer.status === 0 || answer.status >= 502) {
        tries += 1;
        if (tries > RETRIES)
          throw new Error(answer.text || gettext("The console does not answer. Try again when it is back."));
        await new Promise((resolve) => {
          setTimeout(resolve, 400 * 2 ** tries);
        });
        const now = await fetch(`${page.api}/${trace.id}`, { headers: { Accept: "application/json" } }).then(
          (found) => (found.ok ? found.json() : null),
          () => null,
        );
        offset = now?.layers.find(({ id }) => id === layer.id)?.received ?? offset;
      } else {
        throw new Error(
          answer.text || fill(gettext("The upload failed (%(status)s). Try it again."), { status: answer.status }),
        );
      }
      row.meter.value = offset;
      row.text.textContent = fill(gettext("%(sent)s of %(total)s"), { sent: bytes(offset), total: bytes(file.size) });
    }
  }

  async #piece(url, piece) {
    try {
      const answer = await fetch(url, {
        method: "PUT",
        headers: { ...csrfHeaders(), Accept: "application/json", "Content-Type": "application/octet-stream" },
        credentials: "same-origin",
        body: piece,
      });
      const body = await answer.json().catch(() => ({}));
      return {
        ok: answer.ok,
        status: answer.status,
        body,
        text: (body.problems ?? []).map(({ message }) => message).join(" "),
      };
    } catch {
      return { ok: false, status: 0, body: {}, text: "" };
    }
  }

  /** Take back what was announced and will not come. */
  async undo() {
    if (this.trace) await send("DELETE", `${page.api}/${this.trace.id}`).catch(() => null);
  }
}

/** @type {Upload | null} */
let current = null;

async function start(files) {
  const problem = find("[data-problem]");
  problem.textContent = "";
  const large = files.find(({ size }) => size > page.maxBytes);
  if (large) {
    problem.textContent = fill(gettext("%(name)s has %(size)s; a trace file holds at most %(most)s."), {
      name: large.name,
      size: bytes(large.size),
      most: bytes(page.maxBytes),
    });
    return;
  }
  if (!files.length || current) return;
  current = new Upload(files);
  try {
    await current.run();
  } catch (error) {
    await current.undo();
    problem.textContent = messageOf(error);
    find("[data-sending]").hidden = find("[data-sending-verbs]").hidden = true;
  } finally {
    current = null;
  }
}

const zone = document.querySelector("[data-drop]");
if (zone) {
  const input = find("input[data-choose]");
  input.addEventListener("change", () => {
    start([...(input.files ?? [])]);
    input.value = "";
  });
  find("[data-stop]").addEventListener("click", () => {
    if (current) current.isStopped = true;
  });
  onDrop(zone, start);
  addEventListener("beforeunload", (event) => {
    if (current) event.preventDefault();
  });
}
