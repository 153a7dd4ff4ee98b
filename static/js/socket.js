// One websocket that survives anything: reconnects with back-off, catches up with after=<seq>, drops what came twice.

import { gettext } from "./format.js";
import { toast } from "./toast.js";

const CROWDED_TRIES = 5; // as after so many lost ones: the longest wait
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const SILENCE_MS = 16_000; // three heartbeats

/** @typedef {{ id: string, state: string, study: { id: string } | null }} RunHeader what lists of runs read of it */
/** @typedef {{ type: "run", run: RunHeader } | { type: "frame", seq: number } | { type: "trace", trace: object } | { type: "gone" } | { type: "alerts" }} Message what the console tells a page (docs/develop/protocol.md) */

/** Feeds that are open now; the page is connected while all of them are. */
const feeds = new Set();

function announce() {
  const isConnected = [...feeds].every((feed) => feed.isConnected);
  document.dispatchEvent(new CustomEvent("pitwall:connection", { detail: { isConnected } }));
}

/**
 * Follow a websocket.
 *
 * @param {object} options
 * @param {string} options.path       e.g. "/ws/runs/r-1" or "/ws/updates?project=demo"
 * @param {number|null} [options.after]  last frame already on the page; null for feeds without frames
 * @param {(message: Message) => void} options.onMessage   `frame` messages come in order, none missing, none twice
 * @param {(message: object) => Promise<number>} [options.onReset]  load the series again, resolve to their `through_seq`
 * @param {() => void} [options.onOpen]  each time the server follows (again): what changed before was told to nobody
 * @param {() => void} [options.onGone]  what is followed does not exist any more, or is not the reader's to see
 * @returns {{seq: () => number|null, close: () => void}}
 */
export function openFeed({ path, after = null, onMessage, onReset, onOpen, onGone }) {
  const feed = { isConnected: false };
  feeds.add(feed);
  /** @type {WebSocket | null} */
  let socket = null;
  let last = after;
  let tries = 0;
  let timer = 0;
  let watchdog = 0;
  let isBehind = false;
  let isHeard = false; // the server says something once it follows, which is later than it lets somebody in
  let isClosed = false;
  let isCrowded = false;

  function url() {
    const target = new URL(path, location.href);
    target.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    if (last !== null) target.searchParams.set("after", String(last));
    return target;
  }

  function connect() {
    clearTimeout(timer);
    if (isClosed || socket) return;
    let mine;
    try {
      mine = new WebSocket(url());
    } catch {
      later(); // refused before it began; try again like after any other loss
      return;
    }
    socket = mine;
    mine.onopen = () => {
      tries = 0;
      isBehind = false;
      isHeard = false;
      setConnected(true);
    };
    mine.onmessage = (event) => {
      if (mine === socket) receive(JSON.parse(event.data));
    };
    mine.onclose = (event) => {
      if (mine === socket) lose(event.code);
    };
  }

  function receive(message) {
    watch(message.type === "heartbeat");
    if (!isHeard) {
      isHeard = true;
      isCrowded = false;
      onOpen?.();
    }
    if (message.type === "heartbeat") {
      // A frame may be on its way when the heartbeat is written; behind twice in a row, it was lost.
      if (last !== null && message.seq > last) {
        if (isBehind) reconnect();
        isBehind = true;
      } else isBehind = false;
    } else if (message.type === "reset" && last !== null && onReset) {
      drop();
      onReset(message).then(
        (through) => {
          last = through;
          connect();
        },
        () => later(),
      );
    } else if (message.type === "frame" && last !== null) {
      if (message.seq <= last) return;
      if (message.seq !== last + 1) {
        reconnect();
        return;
      }
      last = message.seq;
      onMessage(message);
    } else {
      if (message.type === "alerts") document.dispatchEvent(new CustomEvent("pitwall:alerts")); // the bell counts anew
      onMessage(message);
    }
  }

  function watch(isHeartbeat) {
    if (!isHeartbeat && !watchdog) return; // feeds without heartbeats may be silent
    clearTimeout(watchdog);
    watchdog = setTimeout(reconnect, SILENCE_MS);
  }

  function drop() {
    clearTimeout(watchdog);
    watchdog = 0;
    const old = socket;
    socket = null;
    old?.close();
  }

  function reconnect() {
    drop();
    connect();
  }

  function lose(code) {
    drop();
    const isGone = code === 4403 || code === 4404;
    if (isGone && onGone) {
      close();
      announce();
      onGone();
      return;
    }
    setConnected(false);
    if (code === 4401)
      location.reload(); // the session ended: the page's own sign-in redirect says so
    else if (code === 4429) crowded();
    else if (!isGone) later();
  }

  /** Too many live pages are open: say so once, and look now and then whether some were closed. */
  function crowded() {
    if (!isCrowded)
      toast(gettext("Too many live pages are open, so this one does not move. Close some of them."), { isError: true });
    isCrowded = true;
    tries = Math.max(tries, CROWDED_TRIES);
    later();
  }

  function later() {
    if (isClosed) return;
    clearTimeout(timer);
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** tries);
    tries += 1;
    timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
  }

  function setConnected(isConnected) {
    if (feed.isConnected === isConnected && isConnected) return;
    feed.isConnected = isConnected;
    announce();
  }

  const again = () => {
    if (!socket) {
      tries = 0;
      connect();
    }
  };
  addEventListener("online", again);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) again();
  });
  addEventListener("offline", () => {
    if (socket) {
      drop();
      setConnected(false);
      later();
    }
  });
  function close() {
    isClosed = true;
    clearTimeout(timer);
    drop();
    feeds.delete(feed);
  }

  connect();
  return { seq: () => last, close };
}
