/** The turns of a conversation in a prompt or response: who speaks, what is thought, which tools are called. */

/**
 * @typedef {{ role: string, text: string }} Turn
 *   `role` is "" for text before the first mark, `think` for thoughts, `tool_call` for a call
 */

const ROLES = "system|user|assistant|tool|ipython|environment|observation|developer|model";

/** Marks of chat templates, each with the role in its first group; `plain` are those that decoding without special tokens leaves. */
const TEMPLATES = [
  /<\|im_start\|>([\w-]+)\n?/g, // ChatML, Qwen
  /<\|start_header_id\|>([\w-]+)<\|end_header_id\|>\s*/g, // Llama 3
  /<start_of_turn>([\w-]+)\n?/g, // Gemma
  /<\|(system|user|assistant|observation|tool)\|>\n?/g, // GLM, Phi, Zephyr
];
const PLAIN = new RegExp(`(?:^|\\n)(${ROLES})\\n`, "g");
const ENDS = /<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<end_of_turn>|<\|end\|>|<\|endoftext\|>|<\|begin_of_text\|>/g;
const PARTS = /<(think|tool_call|tool_response)>([\s\S]*?)(?:<\/\1>|$)/g;

/**
 * Return the turns of a text; one with the role "" where nothing marks any.
 * @param {string} text
 * @returns {Turn[]}
 */
export function turnsOf(text) {
  const marked = TEMPLATES.map((template) => split(text, template)).find((turns) => turns.length > 1 || turns[0]?.role);
  const turns = marked ?? plainTurns(text);
  return turns.flatMap(parts).filter((turn) => turn.text !== "");
}

/** Words alone on a line are marks only where a conversation is: two of them, or one at the very beginning. */
function plainTurns(text) {
  const turns = split(text, PLAIN);
  const isConversation = turns.filter((turn) => turn.role).length > 1 || (turns[0]?.role && turns.length > 0);
  return isConversation ? turns : [{ role: "", text: text.trim() }];
}

/** @returns {Turn[]} */
function split(text, template) {
  const turns = [];
  let role = "";
  let from = 0;
  for (const match of text.matchAll(template)) {
    turns.push({ role, text: clean(text.slice(from, match.index)) });
    role = match[1];
    from = match.index + match[0].length;
  }
  turns.push({ role, text: clean(text.slice(from)) });
  return turns.filter((turn) => turn.role || turn.text);
}

const clean = (text) => text.replace(ENDS, "").trim();

/** Return a turn with its thoughts, calls and what tools returned as turns of their own. @returns {Turn[]} */
function parts(turn) {
  const found = [];
  let from = 0;
  for (const match of turn.text.matchAll(PARTS)) {
    found.push({ role: turn.role, text: turn.text.slice(from, match.index).trim() });
    found.push({ role: match[1] === "tool_response" ? "tool" : match[1], text: match[2].trim() });
    from = match.index + match[0].length;
  }
  if (!found.length) return [turn];
  return [...found, { role: turn.role, text: turn.text.slice(from).trim() }];
}
