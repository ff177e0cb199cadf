// Everything that the page knows beside its text. Points of a curve all stem from the curve's own record.

const DATA = JSON.parse(document.getElementById("data").textContent);

for (const figure of DATA.figures) {
  for (const panel of figure.panels) {
    for (const series of panel.series) {
      if ("run" in series) series.runs = series.x.map(() => [series.run]);
    }
  }
}
