// Light or dark: what the system asks for, until the reader chooses.

function startTheme() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = dark() ? "Light colours" : "Dark colours"; };
  try {
    const kept = localStorage.getItem("theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch {
    // a page opened from a file may have no storage; the choice then lasts as long as the page
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    label();
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // as above
    }
  });
  system.addEventListener("change", label);
  label();
}
