/** The parts that the server draws: another view of the same page without a new page, and what live runs have added. */

import { exchange } from "../refresh.js";

/** What the browser keeps in the address itself; a link of the server does not know its newest value. */
const OURS = ["smooth", "by", "zoom", "x", "log", "clip", "m"];

/** Return a link's address with what this page has set since the server wrote it. */
export function address(href) {
  const target = new URL(href, location.href);
  const now = new URLSearchParams(location.search);
  for (const name of OURS) {
    const value = now.get(name);
    if (value !== null) target.searchParams.set(name, value);
    else target.searchParams.delete(name);
  }
  const tab = target.searchParams.get("tab");
  const filter = now.get("q");
  if (filter && tab === now.get("tab")) target.searchParams.set("q", filter);
  return target.pathname + plain(target.searchParams);
}

/** Return a query as people read it: commas and slashes as they are. */
export function plain(params) {
  const text = params.toString().replaceAll("%2C", ",").replaceAll("%2F", "/");
  return text ? `?${text}` : "";
}

/**
 * Fetch `url` and exchange the parts that changed; returns the new page data. With `isStrict` a page of another shape is not
 * taken: null. Neither is an answer that came too late, when `isStill` says that something else is wanted by now: undefined.
 */
export async function fetchParts(url, isStill, { isStrict = false } = {}) {
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) throw new Error(`compare answered ${answer.status}`);
  const text = await answer.text();
  if (!isStill()) return undefined;
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const parts = (root) => [...root.querySelectorAll("#main [data-part]")];
  const names = (root) =>
    parts(root)
      .map((part) => part.dataset.part)
      .join();
  const isSpecial = (root) => root.querySelector(".cmp-notice, .cmp-invite");
  if (isStrict && (names(fresh) !== names(document) || isSpecial(fresh) || isSpecial(document))) return null;
  for (const part of parts(document)) {
    const other = fresh.querySelector(`#main [data-part="${part.dataset.part}"]`);
    if (!other || part.querySelector("details.menu[open]")) continue; // a menu in use stays as it is
    if (part.querySelector("details[open]:not(.menu)"))
      other.querySelector("details:not(.menu)")?.setAttribute("open", "");
    exchange(part, other);
  }
  return pageData();
}

/** Return what the server would give the modules by now, without exchanging a part; null without runs. */
export async function fetchData(href) {
  const url = new URL(href, location.href);
  url.searchParams.set("tab", "charts"); // of all tabs the one that takes the server least
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) throw new Error(`compare answered ${answer.status}`);
  return pageData(new DOMParser().parseFromString(await answer.text(), "text/html"));
}

/** Return what the server gave the modules, null without runs. */
export function pageData(root = document) {
  const node = root.getElementById("compare-page");
  return node ? JSON.parse(node.textContent) : null;
}
