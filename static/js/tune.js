// The page of one sweep: its runs and charts follow what happens; stop all; how many run at once.

import { send } from "./api.js";
import { controls, find, jsonOf } from "./dom.js";
import { fill, gettext, messageOf, ngettext } from "./format.js";
import { atMostEvery, refreshParts } from "./refresh.js";
import { openFeed } from "./socket.js";
import { toast } from "./toast.js";
import { SweepCharts } from "./tune/charts.js";

const page = jsonOf("tune-page");
const charts = new SweepCharts(page.compare);

async function renew() {
  await refreshParts();
  draw();
}

const draw = () => charts.show(jsonOf("tune-points"));

const refresh = atMostEvery(1500, renew);
openFeed({
  path: `/ws/updates?project=${encodeURIComponent(page.project)}`,
  onMessage: (message) => {
    if (
      message.type === "run" &&
      (document.querySelector(`tr[data-run="${CSS.escape(message.run.id)}"]`) || message.run.study?.id === page.id)
    )
      refresh();
  },
  onOpen: () => refresh(),
});

const metric = find("select#metric");
metric.addEventListener("change", () => metric.form?.submit());

const form = document.querySelector("form[data-at-once]");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const input = controls(form).max_concurrent;
  const said = find("#at-once-error");
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
    said.textContent = messageOf(error);
    input.setAttribute("aria-invalid", "true");
    input.focus();
  }
});

const dialog = document.querySelector("dialog#stop-all");
const button = dialog?.querySelector("button[data-stop-now]");
button?.addEventListener("click", async () => {
  button.disabled = true;
  try {
    const { num_stopped: n } = await send("POST", `${page.api}/stop`);
    toast(
      n
        ? fill(ngettext("Stopping %(n)s run", "Stopping %(n)s runs", n), { n })
        : gettext("Every run had ended already."),
    );
  } catch (error) {
    toast(messageOf(error), { isError: true });
  }
  button.disabled = false;
  dialog?.close();
  refresh();
});

draw();
