// What cannot be undone asks first.

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
document.getElementById("new-token")?.scrollIntoView({ block: "center" });
