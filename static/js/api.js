/** Requests to the console's API; a refusal becomes an Error that says it in a sentence. */

import { csrfHeaders, gettext } from "./format.js";

class Refusal extends Error {
  /**
   * @param {string} message
   * @param {number} status of HTTP
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/**
 * Return the JSON of a GET. Raises Error with the API's own sentence, or what `signal` was given up with.
 *
 * @param {string} url
 * @param {{ signal?: AbortSignal }} [options]
 */
export const get = (url, { signal } = {}) => request("GET", url, undefined, signal);

/** Send JSON and return the JSON of the answer. Raises Error with the API's own sentence. */
export const send = (method, url, body) => request(method, url, body ?? {});

/** Return the bytes of a GET that asks for `type`. Raises Error with the API's own sentence; AbortError when `signal` ends it. */
export async function getBytes(url, type, signal) {
  let answer;
  try {
    answer = await fetch(url, { headers: { Accept: type }, credentials: "same-origin", signal });
    if (answer.ok) return await answer.arrayBuffer();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Error(gettext("The console does not answer. Try again when it is back."));
  }
  throw refusalOf(await answer.json().catch(() => ({})), answer.status);
}

/** @param {AbortSignal} [signal] */
async function request(method, url, body, signal) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) Object.assign(headers, csrfHeaders(), { "Content-Type": "application/json" });
  let answer;
  try {
    answer = await fetch(url, {
      method,
      headers,
      credentials: "same-origin",
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    signal?.throwIfAborted();
    throw new Error(gettext("The console does not answer. Try again when it is back."));
  }
  const data = await answer.json().catch(() => ({}));
  signal?.throwIfAborted(); // its end may be missing
  if (answer.ok) return data;
  throw refusalOf(data, answer.status);
}

function refusalOf(data, status) {
  const said = (data.problems ?? []).map((problem) => problem.message).join(" ");
  return new Refusal(said || gettext("The console refused this. Reload the page and try again."), status);
}
