// The list of all records, some at a time.

const AT_ONCE = 50;

function startRecords() {
  const text = document.getElementById("records-text");
  const status = document.getElementById("records-status");
  const body = document.getElementById("records-body");
  const more = document.getElementById("records-more");
  const used = new Set([
    ...Object.values(DATA.cells).flatMap((cell) => [...cell.runs, ...cell.beside.map((pair) => pair[1])]),
    ...DATA.figures.flatMap((figure) => figure.panels.flatMap((panel) => panel.series.flatMap((series) => series.runs.flat()))),
  ]);
  const all = DATA.runs.map((run, at) => {
    const change = Object.entries(run.change).map(([key, value]) => `${key}=${shown(value)}`).join(" ");
    const words = `${run.id} ${run.status} ${commitOf(run)} ${change} ${run.fault ?? ""} ${used.has(at) ? "" : "unused"}`;
    return { run, at, change, words: words.toLowerCase() };
  });
  let found = all;
  let count = 0;

  function add() {
    for (const { run, at, change } of found.slice(count, count + AT_ONCE)) {
      const phase = run.phases.grown ?? run.phases.fixed ?? Object.values(run.phases)[0];
      const size = phase.t ? `t ${phase.t.map((t) => digits(t, 3)).join(", ")}` : `count ${phase.count.join(", ")}`;
      body.append(element("tr", {},
        element("th", { scope: "row" }, link(hashOfRun(at), run.id)),
        element("td", {}, run.fault ? `${run.status}; ${run.fault}` : run.status),
        element("td", {}, size),
        element("td", {}, change),
        element("td", {}, element("code", {}, commitOf(run))),
        element("td", {}, used.has(at) ? "yes" : "no")));
    }
    count = Math.min(count + AT_ONCE, found.length);
    status.textContent = `${count} of ${found.length} records listed`;
    more.hidden = count === found.length;
  }

  function search() {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = all.filter((one) => words.every((word) => one.words.includes(word)));
    count = 0;
    body.replaceChildren();
    add();
  }

  text.addEventListener("input", search);
  more.addEventListener("click", add);
  search();
}
