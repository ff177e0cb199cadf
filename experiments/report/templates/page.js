// Light and dark, and the filter of the tables.

/** Light or dark: what the system asks for, until the reader chooses. */
function startTheme() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = dark() ? "Light colours" : "Dark colours"; };
  try {
    const kept = localStorage.getItem("theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* a page opened from a file may have no storage; the choice then lasts as long as the page */ }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    label();
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* as above */ }
  });
  system.addEventListener("change", label);
  label();
}

/** Which rows of the tables are shown, by verdict and text. What a filter finds is opened. */
function startFilter() {
  const form = document.getElementById("filters");
  const verdict = document.getElementById("filter-verdict");
  const text = document.getElementById("filter-text");
  const rows = [...document.querySelectorAll("tr[data-cell]")];
  const tables = [...document.querySelectorAll("details.cells")].map((node) => ({ node, open: node.open }));
  const apply = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const filtered = Boolean(verdict.value || words.length);
    let count = 0;
    for (const row of rows) {
      const all = `${row.dataset.search} ${row.textContent}`.toLowerCase();
      row.hidden = !((!verdict.value || row.dataset.verdict === verdict.value) && words.every((word) => all.includes(word)));
      count += !row.hidden;
    }
    for (const group of document.querySelectorAll("tbody[data-row], .cells, section.tables")) {
      group.classList.toggle("empty", filtered && !group.querySelector("tr[data-cell]:not([hidden])"));
    }
    document.body.classList.toggle("filtered", filtered);
    for (const { node, open } of tables) node.open = filtered || open;
    document.getElementById("filter-status").textContent = filtered ? `${count} of ${rows.length} rows shown` : `${rows.length} rows`;
  };
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply)); // the fields are emptied after this event
  form.addEventListener("input", apply);
  apply();
}

startTheme();
startFilter();
