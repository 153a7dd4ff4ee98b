/** One sample opened: its texts, tokens by log-probability, the same prompt before, and what people say of it. */

import { send } from "../api.js";
import * as numbers from "../charts/numbers.js";
import { find } from "../dom.js";
import { el, fill, gettext, grouped, icon, messageOf, ngettext } from "../format.js";
import { toast } from "../toast.js";
import { changesOf, levelOf, tokensOf } from "./sample-text.js";

/**
 * @typedef {{
 *   url: string, api: string, canEdit: boolean,
 *   onPrompt: (key: string) => void, onGroup: (id: number) => void, onReview: (sample: any, isVerdict: boolean) => void
 * }} Context
 */

/** Return what an opened row shows of a whole sample, as the API gives it. */
export function sampleDetail(/** @type {any} */ sample, /** @type {Context} */ context) {
  const pair = /** @type {[any, any] | null} */ (pairOf(sample.group_members));
  /** @type {[string, any][]} */
  const parts = [
    [gettext("Prompt"), sample.prompt],
    [gettext("Response"), pair ? sideBySide(pair) : responseOf(sample)],
  ];
  if (!pair) parts.push([gettext("Expected"), sample.expected || "—"]);
  const named = Object.entries(sample.rewards ?? {})
    .map(([name, value]) => `${name} ${numbers.number(value)}`)
    .join(" · ");
  parts.push([gettext("Reward"), numbers.number(sample.reward) + (named ? ` (${named})` : "")]);
  parts.push([gettext("Where"), whereOf(sample, context)]);
  parts.push([gettext("Reviews"), reviewsOf(sample, context)]);
  return el("dl", {}, ...parts.flatMap(([name, content]) => [el("dt", {}, name), el("dd", {}, content)]));
}

/** Give a verdict, or take it back where it is the same; the note stays. */
export function toggleVerdict(
  /** @type {any} */ sample,
  /** @type {"up" | "down"} */ verdict,
  /** @type {Context} */ context,
) {
  const own = ownReview(sample);
  return review(sample, { verdict: own.verdict === verdict ? "" : verdict, note: own.note }, context);
}

async function review(sample, word, context) {
  try {
    const now = await send("PUT", `${context.api}/samples/${sample.id}/review`, word);
    context.onReview(now, word.verdict !== ownReview(sample).verdict);
  } catch (error) {
    toast(messageOf(error), { isError: true });
  }
}

const ownReview = (sample) => sample.reviews.find((one) => one.is_mine) ?? { verdict: "", note: "" };

/** Return the response: plain, with its tokens by likelihood, or with what changed since the prompt was answered before. */
function responseOf(sample) {
  const place = el("div", { class: "run-response" });
  const plain = () => [sample.completion || gettext("(empty)")];
  const ways = /** @type {[string, string, () => (Node | string)[]][]} */ ([["plain", gettext("Text"), plain]]);
  if (sample.token_logprobs.length)
    ways.unshift(["tokens", gettext("By log-probability"), () => colored(sample.completion, sample.token_logprobs)]);
  const changes = sample.step_before === null ? null : changesOf(sample.before, sample.completion);
  if (changes) {
    const label = fill(gettext("Changed since step %(step)s"), { step: grouped(sample.step_before) });
    ways.push(["changes", label, () => changedText(changes)]);
  }
  const buttons = ways.map(([name, label]) =>
    el("button", { type: "button", "aria-pressed": "false", "data-way": name }, label),
  );
  const show = (/** @type {number} */ chosen) => {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === chosen));
    });
    place.replaceChildren(...ways[chosen][2]());
  };
  buttons.forEach((button, i) => {
    button.addEventListener("click", () => show(i));
  });
  show(0);
  if (ways.length === 1) return place;
  const group = { class: "segmented", role: "group", "aria-label": gettext("How the response is shown") };
  return el("div", {}, el("span", group, ...buttons), place);
}

function colored(completion, told) {
  const spans = tokensOf(completion, told).map(({ text, logprob }) => {
    if (logprob === null) return text;
    const title = fill(gettext("log-probability %(logprob)s, probability %(share)s"), {
      logprob: numbers.number(logprob),
      share: `${(Math.exp(logprob) * 100).toPrecision(2)} %`,
    });
    return el("span", { class: "run-token", "data-level": String(levelOf(logprob)), title }, text);
  });
  return [...spans, legend()];
}

function legend() {
  const words = ["≥ 90 %", "< 90 %", "< 50 %", "< 10 %", "< 1 %"];
  return el(
    "span",
    { class: "run-token-legend faint small" },
    gettext("Probability of a token:"),
    ...words.map((word, level) => el("span", { class: "run-token", "data-level": String(level) }, word)),
  );
}

function changedText(changes) {
  const text = changes.map(({ text, isNew }) => (isNew ? el("ins", {}, text) : text));
  if (changes.some(({ isNew }) => isNew)) return text;
  return [el("span", { class: "faint" }, gettext("Every word was there before.")), el("br"), ...text];
}

function whereOf(sample, { url, onPrompt, onGroup }) {
  const text = fill(gettext("step %(step)s, group %(group)s, sample %(index)s, %(tokens)s tokens"), {
    step: sample.step,
    group: sample.group,
    index: sample.index,
    tokens: grouped(sample.tokens),
  });
  const steps = sample.num_steps_of_prompt;
  const same = fill(ngettext("This prompt at %(n)s step", "This prompt at %(n)s steps", steps), { n: grouped(steps) });
  const button = (label, onclick) => el("button", { class: "btn btn-sm", type: "button", onclick }, label);
  return el(
    "span",
    { class: "run-sample-where" },
    text,
    steps > 1 ? button(same, () => onPrompt(sample.prompt_key)) : null,
    sample.group_size > 1 ? button(gettext("Its group"), () => onGroup(sample.id)) : null,
    sample.step > 0
      ? el("a", { href: `${url}/timeline?at_step=${sample.step}` }, gettext("The step on the timeline"))
      : null,
  );
}

function reviewsOf(sample, context) {
  const lines = sample.reviews.map((one) =>
    el(
      "p",
      { class: "run-review" },
      one.verdict ? icon(`thumb-${one.verdict}`) : icon("note"),
      el("b", {}, one.author || "—"),
      el("span", { class: "faint" }, ` ${verdictWord(one.verdict)} ${numbers.moment(new Date(one.at))} `),
      one.note,
    ),
  );
  if (!context.canEdit) return el("div", {}, ...(lines.length ? lines : ["—"]));
  const own = ownReview(sample);
  const note = el("input", {
    class: "form-control",
    name: "note",
    maxlength: "2000",
    autocomplete: "off",
    placeholder: gettext("A note on this sample"),
    "aria-label": gettext("A note on this sample"),
    value: own.note,
  });
  const thumb = (/** @type {"up" | "down"} */ verdict, label, key) =>
    el(
      "button",
      {
        class: "btn btn-sm",
        type: "button",
        "data-verdict": verdict,
        "aria-pressed": String(own.verdict === verdict),
        title: `${label} (${key})`,
        onclick: () => toggleVerdict(sample, verdict, context),
      },
      icon(`thumb-${verdict}`),
      label,
    );
  const form = el(
    "form",
    { class: "run-review-form" },
    thumb("up", gettext("Good"), "u"),
    thumb("down", gettext("Bad"), "d"),
    note,
    el("button", { class: "btn btn-sm", type: "submit" }, gettext("Save note")),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    review(sample, { verdict: own.verdict, note: find("input[name=note]", form).value }, context);
  });
  return el("div", {}, ...lines, form);
}

const verdictWord = (verdict) =>
  verdict === "up" ? gettext("thumbs up") : verdict === "down" ? gettext("thumbs down") : "";

/** The two responses of a pair, whose rewards are named by their sides; null of any other group. */
function pairOf(group) {
  const sides = ["chosen", "rejected"].map((side) => group.find((row) => side in (row.rewards ?? {})));
  return sides.every(Boolean) ? sides : null;
}

function sideBySide([chosen, rejected]) {
  const side = (name, row) =>
    el(
      "div",
      {},
      el("b", {}, fill(gettext("%(side)s, reward %(reward)s"), { side: name, reward: numbers.number(row.reward) })),
      el("p", {}, row.completion || gettext("(empty)")),
    );
  return el("div", { class: "run-pair" }, side(gettext("Chosen"), chosen), side(gettext("Rejected"), rejected));
}
