/** A text area of a dialog: a file may be read into it, and Ctrl+Enter sends it off, as the button does. */

/**
 * @param {{ area: HTMLTextAreaElement, file: HTMLInputElement, button: HTMLElement, onSend: () => void }} parts
 */
export function wirePasteArea({ area, file, button, onSend }) {
  button.addEventListener("click", onSend);
  file.addEventListener("change", async () => {
    const chosen = file.files?.[0];
    if (chosen) area.value = await chosen.text();
    file.value = "";
    area.focus();
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onSend();
    }
  });
}
