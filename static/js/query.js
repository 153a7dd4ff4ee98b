/** The state of the page in its address, so that a reload or a link shows the same. */

export class Query {
  constructor() {
    this.values = new URLSearchParams(location.search);
    this.timer = 0;
  }

  get(name) {
    return this.values.get(name);
  }

  /** Set or, with "", remove a value; the address follows soon, without a new entry in the history. */
  set(name, value) {
    if (value === "" || value === null) this.values.delete(name);
    else this.values.set(name, value);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), 200);
  }

  /** Set a value with a new entry in the history: *back* leads to what was before. */
  push(name, value) {
    this.write();
    this.values.set(name, value);
    history.pushState({ ...history.state, isPushed: true }, "", this.on(location.pathname));
  }

  write() {
    clearTimeout(this.timer);
    const text = this.values.toString();
    history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : ""));
  }

  /** Return the address of another tab with the values that hold on all tabs. */
  on(path) {
    const text = this.values.toString();
    return path + (text ? `?${text}` : "");
  }
}
