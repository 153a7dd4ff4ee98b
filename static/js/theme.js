// Runs before the first paint: where the person left the choice to the system, the system's theme is taken.
(() => {
  const root = document.documentElement;
  const query = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    if (root.dataset.themeChoice === "system") root.dataset.bsTheme = query.matches ? "dark" : "light";
  };
  follow();
  query.addEventListener("change", follow);
})();
