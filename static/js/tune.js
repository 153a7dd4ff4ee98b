// The page of one sweep: its runs and chart follow what happens; stop all; how many run at once.

import { send } from "./api.js";
import { fill, gettext, ngettext } from "./format.js";
import { atMostEvery, refreshParts } from "./refresh.js";
import { openFeed } from "./socket.js";
import { toast } from "./toast.js";
import { Scatter } from "./tune/scatter.js";

const page = JSON.parse(document.getElementById("tune-page").textContent);
const scatter = new Scatter(document.querySelector("[data-chart]"), document.querySelector("[data-caption]"));

async function renew() {
  await refreshParts();
  draw();
}

function draw() {
  scatter.show(JSON.parse(document.getElementById("tune-points").textContent));
}

const refresh = atMostEvery(1500, renew);
openFeed({
  path: `/ws/updates?project=${encodeURIComponent(page.project)}`,
  onMessage: (message) => {
    const run = message.run ?? message;
    if (
      message.type === "run" &&
      (document.querySelector(`tr[data-run="${CSS.escape(run.id ?? "")}"]`) || run.study?.id === page.id)
    )
      refresh();
  },
  onOpen: () => refresh(),
});

document.getElementById("metric").addEventListener("change", (event) => event.target.form.submit());

for (const button of document.querySelectorAll("[data-axis], [data-value]")) {
  button.addEventListener("click", () => {
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
    if (button.dataset.axis) scatter.axis = button.dataset.axis;
    else scatter.value = button.dataset.value;
    draw();
  });
}

const form = document.querySelector("[data-at-once]");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const input = form.elements.max_concurrent;
  const said = document.getElementById("at-once-error");
  try {
    const study = await send("PATCH", page.api, { max_concurrent: input.value });
    input.value = study.max_concurrent;
    said.textContent = "";
    input.removeAttribute("aria-invalid");
    toast(
      fill(ngettext("%(n)s run at once from now on", "%(n)s runs at once from now on", study.max_concurrent), {
        n: study.max_concurrent,
      }),
    );
    refresh();
  } catch (error) {
    said.textContent = error.message;
    input.setAttribute("aria-invalid", "true");
    input.focus();
  }
});

const dialog = document.getElementById("stop-all");
dialog?.querySelector("[data-stop-now]").addEventListener("click", async (event) => {
  const button = event.currentTarget;
  button.disabled = true;
  try {
    const { num_stopped: n } = await send("POST", `${page.api}/stop`);
    toast(
      n
        ? fill(ngettext("Stopping %(n)s run", "Stopping %(n)s runs", n), { n })
        : gettext("Every run had ended already."),
    );
  } catch (error) {
    toast(error.message, { isError: true });
  }
  button.disabled = false;
  dialog.close();
  refresh();
});

draw();
