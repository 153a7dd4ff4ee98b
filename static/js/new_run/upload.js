// A data file on its way to the console: dropped or chosen, with progress, cancelable; its id goes into the form.

import { find } from "../dom.js";
import { onDrop } from "../drop.js";
import { bytes, csrfHeaders, fill, gettext } from "../format.js";

const ENDINGS = [".jsonl", ".json", ".csv", ".parquet"];

/** `onUploaded(id, file)` gets `upload:<sha256>`; `onProblem(sentence)` what went wrong, "" when a new try begins. */
export function wireUpload(form, { onUploaded, onProblem }) {
  const zone = find("[data-drop]", form);
  const text = find("[data-drop-text]", zone);
  const progress = find("progress[data-drop-progress]", zone);
  const cancel = find("[data-drop-cancel]", zone);
  const input = find("input[type=file]", zone);
  const idle = text.textContent;
  /** @type {XMLHttpRequest | null} */
  let request = null;

  function rest(sentence) {
    request = null;
    progress.hidden = cancel.hidden = true;
    text.textContent = sentence;
  }

  function start(file) {
    request?.abort();
    onProblem("");
    if (!ENDINGS.some((ending) => file.name.toLowerCase().endsWith(ending))) {
      onProblem(
        fill(
          gettext(
            "%(name)s is no JSONL, JSON, CSV or Parquet. Choose a file that ends in .jsonl, .json, .csv or .parquet.",
          ),
          {
            name: file.name,
          },
        ),
      );
      return;
    }
    const most = Number(form.dataset.maxBytes);
    if (file.size > most) {
      onProblem(
        fill(
          gettext("%(name)s has %(size)s; uploads hold at most %(most)s. Put it on the cluster and give its path."),
          { name: file.name, size: bytes(file.size), most: bytes(most) },
        ),
      );
      return;
    }
    const sending = new XMLHttpRequest(); // fetch tells nothing of the progress of what it sends
    request = sending;
    sending.open("POST", form.dataset.upload);
    for (const [name, value] of Object.entries(csrfHeaders())) sending.setRequestHeader(name, value);
    sending.setRequestHeader("Accept", "application/json");
    sending.responseType = "json";
    sending.upload.addEventListener("progress", (event) => {
      progress.max = event.total || 1;
      progress.value = event.loaded;
      text.textContent = fill(gettext("%(name)s: %(sent)s of %(total)s"), {
        name: file.name,
        sent: bytes(event.loaded),
        total: bytes(event.total),
      });
    });
    sending.addEventListener("load", () => {
      const answer = sending.response;
      if (sending.status >= 200 && sending.status < 300 && answer?.id) {
        rest(fill(gettext("%(name)s, %(size)s"), { name: file.name, size: bytes(file.size) }));
        onUploaded(answer.id, file);
        return;
      }
      rest(idle);
      onProblem(
        answer?.problems?.map((p) => p.message).join(" ") ??
          fill(gettext("The upload failed (%(status)s). Try it again."), { status: sending.status }),
      );
    });
    sending.addEventListener("error", () => {
      rest(idle);
      onProblem(gettext("The connection broke during the upload. Try it again."));
    });
    sending.addEventListener("abort", () => rest(idle));
    progress.hidden = cancel.hidden = false;
    progress.value = 0;
    const body = new FormData();
    body.append("file", file);
    sending.send(body);
  }

  input.addEventListener("change", () => {
    const file = input.files?.[0];
    if (file) start(file);
    input.value = "";
  });
  cancel.addEventListener("click", () => request?.abort());
  onDrop(zone, ([file]) => file && start(file));
  const known = form.elements["data.id.upload"].value;
  if (known) text.textContent = fill(gettext("uploaded before: %(id)s"), { id: known.slice(7, 19) });
}
