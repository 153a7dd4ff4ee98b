// What stands in the form: read it, put it back, undo, and a draft per tab so that a reload loses nothing.

const NOT_KEPT = ["csrfmiddlewaretoken", "idempotency_key", "parent"];

/** Every input that is part of the run, by name. */
export function inputs(form) {
  const found = new Map();
  for (const node of form.elements) {
    if (node.name && !NOT_KEPT.includes(node.name)) found.set(node.name, node);
  }
  return found;
}

/** The texts of all inputs: {name: text}. */
export function snapshot(form) {
  return Object.fromEntries([...inputs(form)].map(([name, node]) => [name, node.value]));
}

/** Put texts back; names that are not in `values` stay as they are. */
export function apply(form, values) {
  for (const [name, node] of inputs(form)) {
    if (name in values) node.value = values[name];
  }
}

/** Names whose texts differ. */
export function difference(before, after) {
  return Object.keys(after).filter((name) => before[name] !== after[name]);
}

/** The steps back: one per committed change. */
export class History {
  #past = [];
  #now;

  constructor(now) {
    this.#now = now;
  }

  get size() {
    return this.#past.length;
  }

  commit(next) {
    if (difference(this.#now, next).length === 0) return;
    this.#past.push(this.#now);
    if (this.#past.length > 200) this.#past.shift();
    this.#now = next;
  }

  /** The texts before the last change, or null. */
  back() {
    const before = this.#past.pop() ?? null;
    if (before) this.#now = before;
    return before;
  }
}

/** What the page was opened with; the hardware to plan for stands in the address too, and may change. */
function origin() {
  const asked = new URLSearchParams(location.search);
  for (const name of ["accelerator", "nodes", "devices_per_node"]) asked.delete(name);
  return asked.size ? `?${asked}` : "";
}

/** A draft in the tab's own storage; storage may be full or forbidden, which costs the draft and nothing else. */
export class Draft {
  #key = `pitwall.new-run${origin()}`;

  read() {
    try {
      return JSON.parse(sessionStorage.getItem(this.#key) ?? "null");
    } catch {
      return null;
    }
  }

  write(values) {
    try {
      sessionStorage.setItem(this.#key, JSON.stringify(values));
    } catch {
      // No draft then.
    }
  }

  drop() {
    try {
      sessionStorage.removeItem(this.#key);
    } catch {
      // Nothing was kept.
    }
  }
}
