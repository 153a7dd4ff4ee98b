// Account and settings: what cannot be undone asks first; a refused form leaves the page's own address.

import { find } from "./dom.js";

const dialog = find("dialog#confirm");

for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.confirmed) return;
    event.preventDefault();
    find("#confirm-text", dialog).textContent = form.dataset.confirm ?? "";
    const yes = find("[data-yes]", dialog);
    yes.textContent = form.dataset.confirmVerb ?? "";
    yes.onclick = () => {
      form.dataset.confirmed = "yes";
      dialog.close();
      form.requestSubmit();
    };
    dialog.showModal();
  });
}
// A refused form is answered at the form's address: a reload would send it again.
const home = document.querySelector("[data-home]")?.dataset.home;
if (home && location.pathname !== new URL(home, location.href).pathname) history.replaceState(null, "", home);
document.querySelector('main [aria-invalid="true"]')?.focus();
document.querySelector("#new-token, #new-link")?.scrollIntoView({ block: "center" });
