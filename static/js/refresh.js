// Fetch the page again and exchange only what changed: focus, scroll and hover stay where they are.

const LONGEST_MS = 20_000; // for an answer

/** The same markup without what differs on every answer. */
function plain(node) {
  return node.innerHTML.replace(/(name="csrfmiddlewaretoken" value=")[^"]*/g, "$1");
}

/** Exchange the content of `old` by that of `fresh` if it differs and nobody is typing in it; true if it did. */
export function exchange(old, fresh) {
  if (plain(old) === plain(fresh)) return false;
  const active = old.contains(document.activeElement) ? document.activeElement : null;
  if (active?.matches("input, textarea, select")) return false;
  const focused = active ? sameAs(active) : "";
  old.replaceChildren(...document.importNode(fresh, true).childNodes);
  if (focused) old.querySelector(focused)?.focus({ preventScroll: true });
  return true;
}

/** Return a selector of what stands for the same thing on another answer, "" if nothing tells. */
function sameAs(node) {
  const name = ["id", "href", "data-run", "data-metric", "name"].find((one) => node.getAttribute(one));
  return name ? `${node.localName}[${name}="${CSS.escape(node.getAttribute(name))}"]` : "";
}

/** Fetch `url` and exchange every [data-part] of this page by that of the answer. */
export async function refreshParts(url = location.href) {
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) throw new Error(`refresh answered ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    if (other) exchange(part, other);
  }
}

/**
 * A function that runs `act` at most once in `ms`, the last call never lost, and not in a background tab. One run waits
 * for the one before, as an older answer that comes later would stay; but not for one that a lost connection holds up.
 */
export function atMostEvery(ms, act) {
  let last = 0;
  let timer = 0;
  let isRunning = false;
  let isAsked = false;
  const run = async () => {
    timer = 0;
    if (document.hidden) return; // coming back runs it again
    last = Date.now();
    isRunning = true;
    isAsked = false;
    try {
      await Promise.race([act(), new Promise((done) => setTimeout(done, LONGEST_MS))]);
    } catch {
      /* the offline notice says it; the next change tries again */
    }
    isRunning = false;
    if (isAsked) ask();
  };
  const ask = () => {
    isAsked = true;
    if (!isRunning && !timer) timer = setTimeout(run, Math.max(0, last + ms - Date.now()));
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) ask();
  });
  return ask;
}
