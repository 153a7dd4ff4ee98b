/** A prompt or response as elements: the turns of its conversation, one below the other. */

import { el, gettext } from "../format.js";
import { turnsOf } from "./turns.js";

/** Return a text as elements: its turns one below the other, each under its role; the text itself where there are none. */
export function trajectory(text) {
  const turns = turnsOf(text);
  if (turns.length < 2 && !turns[0]?.role) return text;
  return el(
    "ol",
    { class: "run-turns" },
    ...turns.map((turn) =>
      el(
        "li",
        { "data-role": turn.role },
        turn.role ? el("b", {}, roleLabel(turn.role)) : null,
        el("p", {}, turn.text),
      ),
    ),
  );
}

function roleLabel(role) {
  const labels = {
    system: gettext("System"),
    user: gettext("User"),
    assistant: gettext("Assistant"),
    model: gettext("Assistant"),
    tool: gettext("Tool returned"),
    ipython: gettext("Tool returned"),
    observation: gettext("Tool returned"),
    environment: gettext("Environment"),
    tool_call: gettext("Tool call"),
    think: gettext("Thought"),
  };
  return labels[role] ?? role;
}
