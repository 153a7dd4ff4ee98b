// Ask the server about the form as it stands: one question of a kind at a time, a newer one cancels the older.

import { csrfHeaders, gettext } from "../format.js";

export class Unanswered extends Error {}

/** Return the texts of a form as a POST carries them. */
export const bodyOf = (/** @type {HTMLFormElement} */ form) =>
  new URLSearchParams([...new FormData(form)].map(([name, value]) => [name, String(value)]));

/** Return true for the error of a request that was cancelled. */
export const isAbort = (/** @type {unknown} */ error) => error instanceof DOMException && error.name === "AbortError";

/**
 * POST the form and return {status, answer}. Throws Unanswered with a sentence if no JSON comes back.
 *
 * @param {string} url
 * @param {HTMLFormElement} form
 * @param {{ signal?: AbortSignal, body?: URLSearchParams }} [options] `body` instead of the form's texts
 */
export async function post(url, form, { signal, body = bodyOf(form) } = {}) {
  let response;
  try {
    response = await fetch(url, {
      method: "POST",
      body,
      headers: { ...csrfHeaders(), Accept: "application/json" },
      signal,
    });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new Unanswered(gettext("The console does not answer. Nothing is lost: try again in a moment."));
  }
  if (response.redirected && new URL(response.url).pathname.startsWith("/signin")) {
    throw new Unanswered(gettext("You are signed out. Sign in in another tab, then try again here: nothing is lost."));
  }
  if (!response.headers.get("Content-Type")?.startsWith("application/json")) {
    if (response.status === 403)
      throw new Unanswered(
        gettext(
          "The console refused this. Your role may have changed, or you signed in anew: reload the page, your draft is kept.",
        ),
      );
    throw new Unanswered(gettext("The console failed to answer this. Its log says why; nothing is lost here."));
  }
  const answer = await response.json();
  if (response.status === 429) throw new Unanswered(answer.problems[0].message);
  return { status: response.status, answer };
}

export class Question {
  #url;
  #form;
  #wait;
  #timer = 0;
  /** @type {AbortController | null} */
  #abort = null;
  #on;

  constructor(url, form, { waitMs, onStart = () => {}, onAnswer, onFailure }) {
    this.#url = url;
    this.#form = form;
    this.#wait = waitMs;
    this.#on = { onStart, onAnswer, onFailure };
  }

  ask({ now = false } = {}) {
    this.cancel();
    this.#timer = setTimeout(() => this.#send(), now ? 0 : this.#wait);
  }

  /** True while an answer is waited for, or about to be asked for. */
  get isBusy() {
    return this.#timer !== 0 || this.#abort !== null;
  }

  cancel() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#abort?.abort();
    this.#abort = null;
  }

  async #send() {
    const abort = new AbortController();
    this.#timer = 0;
    this.#abort = abort;
    this.#on.onStart();
    try {
      const { answer } = await post(this.#url, this.#form, { signal: abort.signal });
      if (this.#abort !== abort) return;
      this.#abort = null;
      this.#on.onAnswer(answer);
    } catch (error) {
      if (this.#abort !== abort || isAbort(error)) return;
      this.#abort = null;
      if (!(error instanceof Unanswered)) throw error;
      this.#on.onFailure(error.message);
    }
  }
}
