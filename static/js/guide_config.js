// "Can it run?": a config.json that is too long for an address is sent first, and stands in the address by a name.
import { csrfHeaders, el } from "./format.js";

const MOST = 6000; // characters, as the server counts them without spaces
const form = document.querySelector("[data-keep-config]");

form?.addEventListener("htmx:configRequest", (event) => {
  const area = form.elements.config;
  if (event.target !== form || area.value.length <= MOST) return;
  event.preventDefault();
  send(area);
});

async function send(area) {
  const text = area.value;
  const body = new URLSearchParams({ config: text });
  const response = await fetch(form.dataset.keepConfig, {
    method: "POST",
    body,
    headers: { ...csrfHeaders(), Accept: "application/json" },
  }).catch(() => null);
  if (!response?.headers.get("Content-Type")?.startsWith("application/json") || area.value !== text) return;
  const answer = await response.json();
  form
    .querySelector("[data-kept-problem]")
    .replaceChildren(...(answer.problem ? [el("p", { class: "field-error" }, answer.problem)] : []));
  if (answer.problem) return;
  area.value = answer.config;
  area.dispatchEvent(new Event("change", { bubbles: true }));
}
