// Each figure's panels as plots, and the same points as a list of links.

function startFigures() {
  for (const figure of DATA.figures) {
    const home = document.querySelector(`[data-figure="${CSS.escape(figure.name)}"]`);
    if (!home) continue;
    const panels = element("div", { class: figure.columns > 1 ? "panels row" : "panels" });
    home.querySelector("figcaption").after(panels);
    figure.panels.forEach((panel, place) => {
      const series = panel.series.map((one, at) => ({ ...one, links: one.runs.map((runs, point) => linkOf(runs, [figure.name, place, at, point])) }));
      const label = panel.title ? `${figure.title}, ${panel.title}` : figure.title;
      const axes = Object.fromEntries(["x", "y"].map((axis) => [axis, { ...panel[axis], beside: sharing(figure, panel, axis) }]));
      const plot = new Plot({ ...panel, ...axes, label, series });
      panels.append(element("div", {}, element("h4", {}, panel.title), plot.node, listOf(panel, series)));
    });
  }
}

/** The series of all panels that say the same of an axis: they share it. */
function sharing(figure, panel, axis) {
  const same = (other) => other[axis].label === panel[axis].label && other[axis].log === panel[axis].log;
  return figure.panels.filter(same).flatMap((other) => other.series);
}

function linkOf(runs, place) {
  if (!runs?.length) return null;
  return runs.length === 1 ? hashOfRun(runs[0]) : `point/${place.join("/")}`;
}

/** The points as a table; made when it is opened. */
function listOf(panel, series) {
  const dots = series.filter((one) => one.mark !== "line");
  const total = dots.reduce((sum, one) => sum + one.x.length, 0);
  if (!total) return null;
  const made = element("details", { class: "list" }, element("summary", {}, `The ${total} points as a list`));
  made.addEventListener("toggle", () => {
    if (made.childElementCount > 1) return;
    const rows = dots.flatMap((one) => one.x.map((x, at) => [
      one.name, digits(x, 6), digits(one.y[at], 6), one.links[at] ? link(one.links[at], linkName(one.links[at])) : "",
    ]));
    made.append(table(["series", panel.x.label, panel.y.label, "from"], rows, "points"));
  });
  return made;
}
