/** Searching a log: answers come within about a second, and say where the next one goes on. */

/**
 * @typedef {{ cursor: string, text: string }} Line
 * @typedef {{ lines: Line[], has_older: boolean, has_newer: boolean, searched: string, num_older?: number | null, lanes?: object[] }} Answer
 */

/**
 * Ask until there are `limit` lines, or all was looked at; return one answer of all lines.
 *
 * @param {(params: Record<string, string | number>) => Promise<Answer>} ask
 * @param {{ params: Record<string, string | number>, limit: number, onMore?: (found: number) => void }} options `params` has at
 *     most one of before, after and at; `onMore` is told how many there are while it goes on
 * @returns {Promise<Answer>}
 */
export async function search(ask, { params, limit, onMore }) {
  const isForward = Boolean(params.after || params.at);
  const { before: _before, after: _after, at: _at, ...rest } = params;
  /** @type {Line[]} */
  let lines = [];
  for (let next = params; ; ) {
    const answer = await ask({ ...next, limit: String(limit - lines.length) });
    lines = isForward ? [...lines, ...answer.lines] : [...answer.lines, ...lines];
    if (!answer.searched || lines.length >= limit) return { ...answer, lines };
    onMore?.(lines.length);
    next = { ...rest, [isForward ? "after" : "before"]: answer.searched };
  }
}

/**
 * Return the pieces of `text`, and which of them are found; an expression that this browser does not know finds none.
 *
 * @param {string} text
 * @param {string} needle
 * @param {boolean} isExpression
 * @returns {{ text: string, isFound: boolean }[]}
 */
export function pieces(text, needle, isExpression) {
  const expression = needle && patternOf(needle, isExpression);
  if (!expression) return [{ text, isFound: false }];
  /** @type {{ text: string, isFound: boolean }[]} */
  const found = [];
  let at = 0;
  for (const match of text.matchAll(expression)) {
    if (!match[0]) continue;
    if (match.index > at) found.push({ text: text.slice(at, match.index), isFound: false });
    found.push({ text: match[0], isFound: true });
    at = match.index + match[0].length;
  }
  if (at < text.length || !found.length) found.push({ text: text.slice(at), isFound: false });
  return found;
}

/** @param {string} needle @param {boolean} isExpression */
function patternOf(needle, isExpression) {
  try {
    return new RegExp(isExpression ? needle : needle.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
  } catch {
    return null; // RE2 knows some that JavaScript does not
  }
}
