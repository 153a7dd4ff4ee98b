/** A response as text that can be looked into: its tokens by how likely they were, and what changed since another one. */

/** @typedef {{ text: string, logprob: number | null }} Token */

/** Natural logarithms of 0.9, 0.5, 0.1 and 0.01: below each a token stands out more. */
const LEVELS = [0.9, 0.5, 0.1, 0.01].map(Math.log);
const MOST_WORDS = 1200; // of a text that is compared; the table has the square of it

/**
 * Return the tokens of a response in order; the last one is what no token was told of (`logprob` null), if anything.
 * Lengths count characters as Python does, so that a sign outside the basic plane is one.
 *
 * @param {string} completion
 * @param {[number, number | string][]} told
 * @returns {Token[]}
 */
export function tokensOf(completion, told) {
  const characters = [...completion];
  const tokens = [];
  let begin = 0;
  for (const [length, logprob] of told) {
    const text = characters.slice(begin, begin + length).join("");
    begin += length;
    if (text) tokens.push({ text, logprob: typeof logprob === "number" ? logprob : Number(logprob) });
  }
  const rest = characters.slice(begin).join("");
  return rest ? [...tokens, { text: rest, logprob: null }] : tokens;
}

/** Return 0 (likely, 90 % and more) to 4 (less than 1 %). */
export function levelOf(/** @type {number | null} */ logprob) {
  if (logprob === null || Number.isNaN(logprob)) return 0;
  return LEVELS.filter((limit) => logprob < limit).length;
}

/**
 * Return the words of `after`, and whether each is there in `before` at this place of the text; null of texts that are
 * too long to be compared.
 *
 * @param {string} before
 * @param {string} after
 * @returns {{ text: string, isNew: boolean }[] | null}
 */
export function changesOf(before, after) {
  const old = wordsOf(before);
  const now = wordsOf(after);
  if (old.length > MOST_WORDS || now.length > MOST_WORDS) return null;
  const width = old.length + 1;
  const common = new Uint16Array((now.length + 1) * width); // longest common words from here on
  for (let i = now.length - 1; i >= 0; i -= 1)
    for (let j = old.length - 1; j >= 0; j -= 1)
      common[i * width + j] =
        now[i] === old[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  const parts = [];
  let j = 0;
  for (let i = 0; i < now.length; i += 1) {
    while (j < old.length && now[i] !== old[j] && common[i * width + j + 1] > common[(i + 1) * width + j]) j += 1;
    const isNew = now[i] !== old[j];
    if (!isNew) j += 1;
    const last = parts.at(-1);
    if (last?.isNew === isNew) last.text += now[i];
    else parts.push({ text: now[i], isNew });
  }
  return parts;
}

/** Words with the white space behind them. */
const wordsOf = (/** @type {string} */ text) => text.match(/\s*\S+\s*/g) ?? [];
