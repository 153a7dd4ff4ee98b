/** Files that are dropped on a place of the page. */

/**
 * Mark the place while something is above it, and hand over what was dropped.
 * @param {HTMLElement} zone
 * @param {(files: File[]) => void} take
 */
export function onDrop(zone, take) {
  for (const name of ["dragenter", "dragover"])
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.dataset.over = "";
    });
  for (const name of ["dragleave", "drop"])
    zone.addEventListener(name, () => {
      delete zone.dataset.over;
    });
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    take([...(event.dataTransfer?.files ?? [])]);
  });
}
