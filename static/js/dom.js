/** Elements of the page. Their types are read from the selector ("dialog[data-x]" is an HTMLDialogElement): see types.d.ts. */

/**
 * Return the first element that fits, and an Error with the selector where the page lacks it. What a page may lack is
 * asked for by `querySelector`.
 *
 * @template {string} S
 * @param {S} selector
 * @param {ParentNode} [within]
 * @returns {Selected<S>}
 */
export function find(selector, within = document) {
  const found = within.querySelector(selector);
  if (!found) throw new Error(`This page has no ${selector}`);
  return found;
}

/** Return the element that shows the value `name`: `[data-field="<name>"]`. */
export const field = (/** @type {string} */ name) => find(`[data-field="${name}"]`);

/**
 * Return what the event came from, or the nearest element around it, that fits; else null.
 *
 * @template {string} S
 * @param {Event} event
 * @param {S} selector
 * @returns {Selected<S> | null}
 */
export function around(event, selector) {
  return event.target instanceof Element ? event.target.closest(selector) : null;
}

/**
 * Return a copy of the one element in a template.
 *
 * @param {`template${string}`} selector
 */
export function copyOf(selector) {
  const found = /** @type {HTMLTemplateElement} */ (find(selector)).content.firstElementChild;
  if (!found) throw new Error(`There is nothing in ${selector}`);
  return /** @type {HTMLElement} */ (found.cloneNode(true));
}

/**
 * Return the controls of a form by their names; one that it lacks is undefined.
 *
 * @param {HTMLFormElement} form
 * @returns {Record<string, Control>}
 */
export const controls = (form) => /** @type {any} */ (form.elements);

/** Return the JSON that the page carries in the script element `id`. */
export const jsonOf = (/** @type {string} */ id) => JSON.parse(find(`#${id}`).textContent);
