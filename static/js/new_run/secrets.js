// Inputs for the values of the secrets that the form names. They have no name of their own in the form, so no draft, no
// step back, no check and no address ever holds them: they are put into the body of the launch alone.

import { copyOf, find } from "../dom.js";
import { fill, gettext } from "../format.js";
import { namesIn } from "./parts.js";

/**
 * Wire the inputs; `kept` are the names of secrets that the project keeps.
 *
 * @param {HTMLFormElement} form
 * @param {{ kept: string[] }} options
 */
export function wireSecrets(form, { kept }) {
  const section = find("[data-secrets]", form);
  const list = find("[data-secret-rows]", section);
  /** @type {Map<string, HTMLElement>} */
  const rows = new Map();

  function row(/** @type {string} */ name) {
    const node = /** @type {HTMLElement} */ (copyOf("template#secret-row"));
    const input = /** @type {HTMLInputElement} */ (find("input", node));
    find("code", node).textContent = name;
    input.setAttribute("aria-label", fill(gettext("Value of the secret %(name)s"), { name }));
    input.placeholder = kept.includes(name) ? gettext("kept by the project: leave empty") : gettext("its value");
    return node;
  }

  const named = () => {
    const input = /** @type {HTMLInputElement | null} */ (form.elements.namedItem("environment.secrets"));
    return namesIn(input?.value ?? "");
  };

  return {
    /** Show an input for each name; what was typed for a name stays while it is there. */
    show() {
      const names = named();
      for (const [name, node] of rows) {
        if (names.includes(name)) continue;
        node.remove();
        rows.delete(name);
      }
      for (const name of names) {
        if (rows.has(name)) continue;
        rows.set(name, row(name));
        list.append(/** @type {HTMLElement} */ (rows.get(name)));
      }
      section.hidden = names.length === 0;
    },

    /** Put the values that were typed into the body of a launch, and return it. */
    into(/** @type {URLSearchParams} */ body) {
      for (const [name, node] of rows) {
        const { value } = /** @type {HTMLInputElement} */ (find("input", node));
        if (value) body.set(`secret.${name}`, value);
      }
      return body;
    },
  };
}
