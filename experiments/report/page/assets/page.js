// Light and dark, the filter of the tables, and the figures, which Observable Plot draws from the block of data.

const DATA = JSON.parse(document.getElementById("data").textContent);
const SYMBOLS = ["circle", "square", "triangle", "times", "diamond", "plus", "star"];
const DASHES = ["none", "6 3", "8 3 2 3", "2 3", "6 3", "8 3 2 3", "2 3"];
const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** An element with attributes and children; whatever is text stays text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

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

/** The points of a series as objects, without those that its axes cannot show. */
function pointsOf(series, panel) {
  const shows = (value, axis) => Number.isFinite(value) && (!panel[axis].log || value > 0);
  return series.x
    .map((x, at) => ({
      name: series.name, x: x + (series.shift?.[at] ?? 0), count: x, y: series.y[at],
      low: series.low?.[at] ?? null, high: series.high?.[at] ?? null,
      runs: series.runs?.[at] ?? (series.run === undefined ? [] : [series.run]),
    }))
    .filter((point) => shows(point.x, "x") && shows(point.y, "y"));
}

/** The range of an axis over all panels of a figure that say the same of it. */
function rangeOf(figure, panel, axis) {
  const same = figure.panels.filter((one) => one[axis].label === panel[axis].label && one[axis].log === panel[axis].log);
  const ends = same.flatMap((one) => one.series.flatMap((series) => pointsOf(series, one).flatMap((point) => (
    axis === "x" ? [point.x] : [point.y, point.low ?? point.y, point.high ?? point.y]))));
  const [low, high] = d3.extent(ends.filter((end) => !panel[axis].log || end > 0));
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

/** 0.00001 as 10⁻⁵, other numbers short. */
function short(value) {
  const power = Math.log10(value);
  if (!Number.isInteger(Math.round(power * 1e9) / 1e9) || Math.abs(power) < 1.5) return String(Number(value.toPrecision(4)));
  return `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(Math.round(power)))].map((digit) => RAISED[digit]).join("")}`;
}

/** Powers of ten, and 2 and 5 times them where the range is short; of counts whole numbers alone. */
function ticksOf(scale, range, room, whole) {
  if (!scale.log) return whole ? { ticks: d3.ticks(...range, room).filter(Number.isInteger), tickFormat: ",d" } : { ticks: room };
  const wide = Math.log10(range[1] / range[0]);
  const exponents = d3.range(Math.floor(Math.log10(range[0])), Math.ceil(Math.log10(range[1])) + 1, Math.max(1, Math.ceil(wide / room)));
  const ticks = exponents.flatMap((at) => (wide < 2 ? [1, 2, 5] : [1]).map((factor) => factor * 10 ** at));
  return { ticks: ticks.filter((tick) => tick >= range[0] && tick <= range[1]), tickFormat: short };
}

function marksOf(series, points, panel) {
  const colour = series.guide ? (series.guide === "measured" ? "var(--ink)" : "var(--quiet)") : `var(--look${series.look % 7})`;
  const place = { x: "x", y: "y" };
  if (series.mark === "line") {
    const dash = series.guide ? (series.guide === "reference" ? "2 4" : points.length === 2 ? "none" : "7 4") : DASHES[series.look % 7];
    const line = Plot.line(points, { ...place, stroke: colour, strokeDasharray: dash, strokeWidth: series.faint ? 1 : 1.8, strokeOpacity: series.faint ? 0.35 : 1 });
    if (!series.text) return [line];
    return [line, Plot.text([points[Math.floor(points.length / 2)]], { ...place, text: () => series.text, dy: -8, fill: "var(--ink)" })];
  }
  const symbol = SYMBOLS[series.look % 7];
  const strokes = symbol === "times" || symbol === "plus";
  return [
    Plot.ruleX(points.filter((point) => point.low !== null), { x: "x", y1: "low", y2: "high", stroke: colour, strokeOpacity: 0.75, strokeWidth: 1.5 }),
    series.mean ? Plot.line(points, { ...place, stroke: colour, strokeWidth: 1.8 }) : null,
    Plot.dot(points, { ...place, symbol, r: series.faint ? 2.5 : 4, stroke: colour, strokeOpacity: series.faint ? 0.45 : 1, strokeWidth: strokes ? 1.8 : 1.2,
      fill: strokes || series.faint ? "none" : colour, fillOpacity: series.mean ? 1 : 0.35 }),
    Plot.text(points.filter((point) => !series.faint && point.runs.length && point.runs.length <= panel.fewest), { ...place, text: (point) => point.runs.length, dx: 8, dy: -8, fontSize: 10, fill: "var(--quiet)" }),
  ];
}

/** What a point says: its series, numbers and runs. */
function words(point, panel) {
  const runs = point.runs.length === 1 ? DATA.runs[point.runs[0]] : point.runs.length ? `${point.runs.length} runs` : "";
  return [point.name, `${panel.x.label}: ${short(point.count)}`, `${panel.y.label}: ${short(point.y)}`, runs].filter(Boolean).join("\n");
}

function draw(figure, panel, width) {
  const drawn = panel.series.map((series) => [series, pointsOf(series, panel)]);
  const [x, y] = ["x", "y"].map((axis) => rangeOf(figure, panel, axis));
  const all = drawn.filter(([series]) => !series.guide).flatMap(([, points]) => points);
  const whole = (axis) => all.every((point) => Number.isInteger(point[axis]));
  const between = panel.lanes ? d3.range(Math.ceil(x[0]) - 0.5, x[1] + 0.5) : [];
  const type = (axis) => (panel[axis].log ? "log" : "linear");
  return Plot.plot({
    width, height: Math.round(Math.min(340, Math.max(230, width * 0.62))), marginLeft: 54, marginBottom: 40, marginTop: 26, marginRight: 14, inset: 8,
    ariaLabel: `${figure.title}${panel.title ? `, ${panel.title}` : ""}. ${panel.y.label} against ${panel.x.label}. The list below has its points.`,
    style: { fontSize: "12px", fontFamily: "inherit" },
    x: { label: panel.x.label, type: type("x"), domain: x, labelAnchor: "right", ...ticksOf(panel.x, x, Math.max(3, width / 80), panel.lanes || whole("x")) },
    y: { label: panel.y.label, type: type("y"), domain: y, grid: true, ...ticksOf(panel.y, y, 5, whole("y")) },
    marks: [
      Plot.ruleX(between, { strokeOpacity: 0.12 }),
      ...drawn.flatMap(([series, points]) => (points.length ? marksOf(series, points, panel) : [])),
      Plot.tip(all, Plot.pointer({ x: "x", y: "y", title: (point) => words(point, panel), fill: "var(--paper)", stroke: "var(--quiet)" })),
    ],
  });
}

/** The names of the series beside what they look like. */
function legend(figure) {
  const named = new Map();
  for (const series of figure.panels.flatMap((panel) => panel.series)) {
    if (!series.guide && (!named.has(series.name) || !series.faint)) named.set(series.name, series);
  }
  const items = [...named.values()].map((series) => {
    const sample = { name: "", count: 0, y: 0, runs: [], low: null };
    const points = series.mark === "line" || series.mean ? [{ ...sample, x: 0 }, { ...sample, x: 2 }] : [];
    const marks = series.mark === "line" ? marksOf({ ...series, text: "" }, points, { fewest: 0 })
      : [...(series.mean ? [Plot.line(points, { x: "x", y: "y", stroke: `var(--look${series.look % 7})`, strokeWidth: 1.8 })] : []),
        ...marksOf({ ...series, mean: false }, [{ ...sample, x: 1 }], { fewest: 0 })];
    const icon = Plot.plot({ width: 30, height: 14, margin: 0, axis: null, x: { domain: [-0.2, 2.2] }, y: { domain: [-1, 1] }, marks });
    icon.setAttribute("aria-hidden", "true");
    return element("li", {}, icon, series.name);
  });
  return element("ul", { class: "legend" }, ...items);
}

/** The points of a panel as a table, made when it is opened. */
function listOf(figure, panel) {
  const points = panel.series.filter((series) => series.mark === "dots").flatMap((series) => pointsOf(series, panel));
  if (!points.length) return "";
  const made = element("details", {}, element("summary", {}, `${points.length} points as a list`));
  made.addEventListener("toggle", () => {
    if (made.childElementCount > 1) return;
    const heads = ["series", panel.x.label, panel.y.label, "runs"];
    const row = (cells, tag) => element("tr", {}, ...cells.map((cell) => element(tag, {}, String(cell))));
    const body = points.map((point) => row([point.name, point.count, point.y, point.runs.map((run) => DATA.runs[run]).join(" ")], "td"));
    const table = element("table", {}, element("thead", {}, row(heads, "th")), element("tbody", {}, ...body));
    made.append(element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `points of ${figure.title}` }, table));
  });
  return made;
}

/** A figure behind what is in `home` already; drawn again when its width changes. */
function place(figure, home) {
  const panels = element("div", { class: figure.columns > 1 ? "panels row" : "panels" });
  home.append(legend(figure), panels);
  for (const panel of figure.panels) {
    const canvas = element("div", { class: "plot" });
    panels.append(element("div", {}, element("h4", {}, panel.title), canvas, listOf(figure, panel)));
    let width = 0;
    new ResizeObserver(() => {
      const room = Math.min(canvas.clientWidth, 820);
      if (room < 40 || Math.abs(room - width) < 8) return;
      width = room;
      canvas.replaceChildren(draw(figure, panel, width));
    }).observe(canvas);
  }
}

startTheme();
startFilter();
for (const figure of DATA.figures) place(figure, document.querySelector(`[data-figure="${figure.name}"]`));
for (const home of document.querySelectorAll("details[data-curves]")) {
  home.addEventListener("toggle", () => {
    const curves = DATA.curves[home.dataset.curves];
    home.append(element("p", { class: "note" }, curves.title));
    place(curves, home);
  }, { once: true });
}
