// "Can it run?": a config.json that is too long for an address is sent first, and stands in the address by a name.
import { controls, find } from "./dom.js";
import { csrfHeaders, el } from "./format.js";

const MOST = 6000; // characters, as the server counts them without spaces
const form = document.querySelector("form[data-keep-config]");

form?.addEventListener("htmx:configRequest", (event) => {
  const area = controls(form).config;
  if (event.target !== form || area.value.length <= MOST) return;
  event.preventDefault();
  send(form, area);
});

async function send(form, area) {
  const text = area.value;
  const body = new URLSearchParams({ config: text });
  const response = await fetch(form.dataset.keepConfig, {
    method: "POST",
    body,
    headers: { ...csrfHeaders(), Accept: "application/json" },
  }).catch(() => null);
  if (!response?.headers.get("Content-Type")?.startsWith("application/json") || area.value !== text) return;
  const answer = await response.json();
  find("[data-kept-problem]", form).replaceChildren(
    ...(answer.problem ? [el("p", { class: "field-error" }, answer.problem)] : []),
  );
  if (answer.problem) return;
  area.value = answer.config;
  area.dispatchEvent(new Event("change", { bubbles: true }));
}
