/** A set of names that this browser keeps for a project: folded sections, pinned metrics. */

export class KeptNames {
  /**
   * @param {string} place where they are kept
   * @param {Pick<Storage, "getItem" | "setItem">} [storage]
   */
  constructor(place, storage = localStorage) {
    this.place = place;
    this.storage = storage;
    this.names = new Set(this.#read());
  }

  #read() {
    try {
      const kept = JSON.parse(this.storage.getItem(this.place) ?? "[]");
      return Array.isArray(kept) ? kept.map(String) : [];
    } catch {
      return [];
    }
  }

  has(/** @type {string} */ name) {
    return this.names.has(name);
  }

  /** Return the name itself or the prefix (it ends with "/") under which `name` is kept, or null. */
  over(/** @type {string} */ name) {
    if (this.names.has(name)) return name;
    for (const kept of this.names) if (kept.endsWith("/") && name.startsWith(kept)) return kept;
    return null;
  }

  /** Keep the name, or no longer. */
  toggle(/** @type {string} */ name) {
    if (!this.names.delete(name)) this.names.add(name);
    try {
      this.storage.setItem(this.place, JSON.stringify([...this.names]));
    } catch {
      // a browser that keeps nothing: it holds until the page is left
    }
  }
}
