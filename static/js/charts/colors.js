/** Colors for canvases: read from the CSS variables, again after each change of theme. */

/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {Map<string, string>} */
let values = new Map();

/** Return the value of a CSS variable, e.g. color("--text-3"). */
export function color(/** @type {string} */ name) {
  const known = values.get(name);
  if (known !== undefined) return known;
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  values.set(name, value);
  return value;
}

/** Return `hex` (#rrggbb) with an opacity. */
export function faded(/** @type {string} */ hex, /** @type {number} */ alpha) {
  const part = (/** @type {number} */ at) => Number.parseInt(hex.slice(at, at + 2), 16);
  return hex.length === 7 ? `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${alpha})` : hex;
}

/** Call `listener` after each change of theme. */
export const onTheme = (/** @type {() => void} */ listener) => listeners.add(listener);

new MutationObserver(() => {
  values = new Map();
  for (const listener of listeners) listener();
}).observe(document.documentElement, { attributes: true, attributeFilter: ["data-bs-theme"] });

/**
 * Return what draws on a canvas.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2DSettings} [settings]
 */
export function brushOf(canvas, settings) {
  const brush = canvas.getContext("2d", settings);
  if (!brush) throw new Error("This browser draws on no canvas");
  return brush;
}

/** Return a 135° hatch as a fill for waiting time. */
export function hatch(/** @type {CanvasRenderingContext2D} */ context) {
  const tile = document.createElement("canvas");
  const ratio = window.devicePixelRatio || 1;
  const side = Math.round(6 * ratio);
  tile.width = tile.height = side;
  const brush = brushOf(tile);
  brush.fillStyle = color("--waiting");
  brush.fillRect(0, 0, side, side);
  brush.strokeStyle = color("--waiting-hatch");
  brush.lineWidth = ratio;
  brush.beginPath();
  for (const shift of [-side, 0, side]) {
    brush.moveTo(shift, side);
    brush.lineTo(shift + side, 0);
  }
  brush.stroke();
  const pattern = /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat")); // null only of an image that has not loaded
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}
