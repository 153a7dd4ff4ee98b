// Account and settings: what cannot be undone asks first; a refused form leaves the page's own address.

const dialog = document.getElementById("confirm");

for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.confirmed) return;
    event.preventDefault();
    dialog.querySelector("#confirm-text").textContent = form.dataset.confirm;
    const yes = dialog.querySelector("[data-yes]");
    yes.textContent = form.dataset.confirmVerb;
    yes.onclick = () => {
      form.dataset.confirmed = "yes";
      dialog.close();
      form.requestSubmit();
    };
    dialog.showModal();
  });
}
// A refused form is answered at the form's address: a reload would send it again.
const home = document.querySelector("[data-home]");
if (home && location.pathname !== new URL(home.dataset.home, location.href).pathname)
  history.replaceState(null, "", home.dataset.home);
document.querySelector('main [aria-invalid="true"]')?.focus();
document.querySelector("#new-token, #new-link")?.scrollIntoView({ block: "center" });
