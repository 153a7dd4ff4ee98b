/**
 * Hands a trace over to Perfetto in the frame below: fetched from this origin, posted as a buffer. Perfetto takes it once it
 * answers a PING with a PONG; nothing leaves the console.
 */

import { field, find, jsonOf } from "./dom.js";
import { bytes, fill, gettext, messageOf } from "./format.js";

const PING_MS = 50;
const UNFOLD_MS = 30000;
const MOST_GROUPS = 12;
const PATIENCE_MS = 60000; // its bundles are 16 MB; a slow line takes a while

const page = jsonOf("perfetto-page");

function say(text) {
  field("perfetto-state").textContent = text;
}

function complain(text) {
  const problem = field("perfetto-problem");
  problem.hidden = false;
  find("p", problem).textContent = text;
  say("");
}

/** Load the interface and resolve once it listens. */
function opened(frame) {
  frame.src = `${page.ui}#!/viewer?mode=embedded`;
  return new Promise((resolve, reject) => {
    const ping = setInterval(() => frame.contentWindow.postMessage("PING", location.origin), PING_MS);
    const patience = setTimeout(
      () =>
        end(() =>
          reject(
            new Error(gettext("Perfetto did not start. Reload the page, or download the trace and open it elsewhere.")),
          ),
        ),
      PATIENCE_MS,
    );
    const listen = (event) => {
      if (event.source === frame.contentWindow && event.origin === location.origin && event.data === "PONG")
        end(resolve);
    };
    const end = (settle) => {
      clearInterval(ping);
      clearTimeout(patience);
      removeEventListener("message", listen);
      settle();
    };
    addEventListener("message", listen);
  });
}

/** Fetch the trace, saying how far it is. */
async function fetched() {
  let answer;
  try {
    answer = await fetch(page.trace, { credentials: "same-origin" });
  } catch {
    throw new Error(gettext("The console does not answer. Try again when it is back."));
  }
  if (!answer.ok) throw new Error(gettext("The trace cannot be read: it may have been deleted. Go back to the run."));
  const parts = [];
  let received = 0;
  if (!answer.body) return answer.arrayBuffer();
  const reader = answer.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    received += value.length;
    say(fill(gettext("fetching %(done)s of %(all)s"), { done: bytes(received), all: bytes(page.size) }));
  }
  return new Blob(parts).arrayBuffer();
}

/** Unfold the processes, so that their phases are seen at once. Perfetto's own objects may change: then they stay folded. */
async function unfold(frame) {
  const end = Date.now() + UNFOLD_MS;
  while (Date.now() < end) {
    const groups =
      frame.contentWindow?.app?.trace?.workspaces?.currentWorkspace?.children?.filter((node) => node.hasChildren) ?? [];
    if (groups.length) {
      try {
        for (const group of groups.slice(0, MOST_GROUPS)) group.expand();
        frame.contentWindow.app.raf?.scheduleFullRedraw?.();
      } catch {
        /* folded is fine too */
      }
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function show(frame) {
  try {
    const [buffer] = await Promise.all([fetched(), opened(frame)]);
    const size = buffer.byteLength;
    frame.contentWindow.postMessage({ perfetto: { buffer, title: page.title, keepApiOpen: true } }, location.origin, [
      buffer,
    ]);
    say(fill(gettext("%(size)s handed over"), { size: bytes(size) }));
    frame.dataset.handed = String(size);
    unfold(frame);
  } catch (error) {
    complain(messageOf(error));
  }
}

function start(frame) {
  if (page.size >= page.mostBytes) {
    complain(
      gettext("This trace is larger than the 4 GiB that Perfetto can hold in a browser. Record fewer steps or ranks."),
    );
  } else if (page.size > page.warnBytes) {
    complain(
      fill(
        gettext(
          "This trace has %(size)s; a browser may take minutes for it or give up. Fewer steps or ranks make smaller ones.",
        ),
        { size: bytes(page.size) },
      ),
    );
    const problem = field("perfetto-problem");
    const anyway = find("button", problem);
    anyway.hidden = false;
    anyway.addEventListener("click", () => {
      problem.hidden = true;
      show(frame);
    });
  } else {
    show(frame);
  }
}

const choice = document.querySelector("select[data-trace]");
choice?.addEventListener("change", () => choice.form?.submit());
const frame = document.querySelector("iframe[data-perfetto]");
if (frame) start(frame);
