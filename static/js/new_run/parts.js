// Lists in an input's text: of further rewards as JSON, of names as words.

/** The parts that a text holds; none where it is no list. */
export function partsOf(text) {
  try {
    const parts = text.trim() ? JSON.parse(text) : [];
    return Array.isArray(parts) ? parts : [];
  } catch {
    return [];
  }
}

/** The text of parts, "" for none: as the server writes it, so that nothing counts as changed. */
export function textOf(parts) {
  return parts.length ? JSON.stringify(parts) : "";
}

/** The text of a number without commas between its thousands, as plain_number of jobs/catalog/value.py; 0,001 stays. */
export function plainNumber(/** @type {string} */ text) {
  const plain = text.trim();
  return /^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$/.test(plain) ? plain.replaceAll(",", "") : plain;
}

/** What was typed as a weight: a number, or the text for the server to refuse. */
export function weightOf(text) {
  const plain = plainNumber(text);
  return plain && Number.isFinite(Number(plain)) ? Number(plain) : text;
}

/** The names in a text, each once: they are divided by blanks or commas. */
export const namesIn = (/** @type {string} */ text) => [...new Set(text.split(/[\s,]+/).filter(Boolean))];
