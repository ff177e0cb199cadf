// Which cells are shown: by verdict, section and text. Rows carry what they are filtered by.

function startFilters() {
  const form = document.getElementById("filters");
  const section = document.getElementById("filter-section");
  const text = document.getElementById("filter-text");
  const status = document.getElementById("filter-status");
  const buttons = [...form.querySelectorAll("button[data-verdict]")];
  const rows = [...document.querySelectorAll("tr[data-cell]")].map((node) => ({
    node,
    verdict: node.dataset.verdict,
    section: node.closest("[data-section]").dataset.section,
    text: `${node.dataset.search} ${node.textContent}`.toLowerCase(),
  }));
  const none = document.getElementById("filter-none");
  const tables = [...document.querySelectorAll("details.cells")].map((node) => ({ node, open: node.open }));
  form.hidden = false;

  function apply() {
    const wanted = new Set(buttons.filter((button) => button.getAttribute("aria-pressed") === "true").map((button) => button.dataset.verdict));
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const keep = (!wanted.size || wanted.has(row.verdict)) && (!section.value || row.section === section.value) && words.every((word) => row.text.includes(word));
      row.node.hidden = !keep;
      count += keep;
    }
    for (const group of document.querySelectorAll("tbody[data-row], .cells, section[data-section]")) {
      group.classList.toggle("empty", !group.querySelector("tr[data-cell]:not([hidden])"));
    }
    none.hidden = count > 0;
    const filtered = wanted.size || words.length || section.value;
    document.body.classList.toggle("filtered", Boolean(filtered));
    // what a filter finds is shown; without one, tables of which nothing was run stay closed
    for (const { node, open } of tables) node.open = Boolean(filtered) || open;
    status.textContent = filtered ? `${count} of ${rows.length} cells shown` : `${rows.length} cells`;
  }

  /** Show one verdict of one section (either may be empty), as the counts of the overview do. */
  function choose(verdict, of) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.verdict === verdict));
    section.value = of;
    apply();
    const target = of ? document.querySelector(`section[data-section="${CSS.escape(of)}"]`) : document.querySelector("section[data-section]:not(.empty)");
    target?.scrollIntoView();
    target?.querySelector("tr[data-cell]:not([hidden]) a")?.focus({ preventScroll: true });
  }

  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      apply();
    });
  }
  for (const button of document.querySelectorAll("button[data-choose]")) {
    button.addEventListener("click", () => choose(button.dataset.choose, button.dataset.of ?? ""));
  }
  none.querySelector("button").addEventListener("click", () => form.reset());
  section.addEventListener("change", apply);
  text.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault(); // the browser would empty the fields only after this
    for (const button of buttons) button.setAttribute("aria-pressed", "false");
    section.value = text.value = "";
    apply();
  });
  // the whole row opens the panel; the link in it is what the keyboard reaches
  document.addEventListener("click", (event) => {
    const row = event.target.closest?.("tr[data-cell]");
    if (row && !event.target.closest("a") && !String(getSelection())) row.querySelector("a").click();
  });
  apply();
}
