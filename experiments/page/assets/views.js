// What the panel shows: a cell with its records and arithmetic, a record, or the records behind a point.

const RUN_AT = new Map(DATA.runs.map((run, at) => [run.id, at]));

const hashOfRun = (at) => `run/${DATA.runs[at].id}`;
const link = (hash, text) => element("a", { href: `#${hash}` }, text);
const commitOf = (run) => (DATA.about[run.code].commit ?? "unknown").slice(0, 10);

/** What a link of a point leads to, in words. */
function linkName(hash) {
  if (!hash) return "";
  const [kind, ...rest] = hash.split("/");
  if (kind === "run") return `record ${rest[0]}`;
  const runs = pointOf(rest)?.series.runs[rest[3]] ?? [];
  return `${runs.length} records`;
}

function pointOf([figure, panel, series, at]) {
  const found = DATA.figures.find((one) => one.name === figure);
  const drawn = found?.panels[panel]?.series[series];
  return drawn ? { figure: found, panel: found.panels[panel], series: drawn, at: Number(at) } : null;
}

/** Everything that a record stands behind: cells by name, figures by title. */
function usesOf(at) {
  const cells = Object.entries(DATA.cells).filter(([, cell]) => cell.runs.includes(at) || cell.beside.some((pair) => pair[1] === at));
  const figures = DATA.figures.filter((figure) => figure.panels.some((panel) => panel.series.some((series) => series.runs.some((runs) => runs?.includes(at)))));
  return { cells, figures };
}

function verdictChip(word) {
  const at = DATA.verdicts.findIndex((one) => one.word === word);
  const { sign, slug } = DATA.verdicts[at] ?? { sign: "", slug: "other" };
  return element("span", { class: `verdict ${slug}` }, element("span", { class: "sign", "aria-hidden": "true" }, sign), word);
}

function problemList(problems) {
  if (!problems.length) return null;
  const items = problems.map(([kind, where, text]) => {
    const at = RUN_AT.get(where);
    return element("li", {}, `${kind}: `, at === undefined ? where : link(hashOfRun(at), where), `: ${text}`);
  });
  return [element("h3", {}, "What keeps it from being printed, or is left out"), element("ul", { class: "plain" }, items)];
}

// a cell

function cellView(name) {
  const cell = DATA.cells[name];
  if (!cell) return null;
  const parts = cell.parts.length
    ? [table(["number", "published", "from", "to", "published value lies", "interval"],
        cell.parts.map(([part, published, low, high, inside, narrow]) => [part, digits(published), digits(low), digits(high), inside ? "inside" : "outside", narrow ? "narrow enough" : cell.seeds === 1 ? "of our seeds" : "too wide to agree"]),
        "intervals")]
    : [];
  return {
    title: cell.title,
    kind: "cell",
    body: [
      pairs([
        ["table", cell.table], ["ours", cell.ours], ["seeds", cell.wanted ? `${cell.n} of ${cell.wanted}` : ""],
        ["published", cell.published || "a dash"], ["verdict", verdictChip(cell.verdict)], ...(cell.calibrated ? [["calibrated", "settings were chosen by this number, or by one of the same configuration"]] : []),
        ["data", cell.data.join("; ")],
        ["in the paper's file", cell.stand_in ? `no: a stand-in, ${cell.stand_in}` : cell.printed],
      ]),
      ...(parts.length ? [element("h3", {}, cell.seeds === 1 ? "Range of all our seeds" : "Published values that the test does not reject, at 5 %"), ...parts] : []),
      ...stripsOf(cell),
      ...arithmeticOf(cell),
      ...recordsOf(cell),
      problemList(cell.problems),
      element("p", { class: "note" }, "In a terminal: ", element("code", {}, `python scripts/build_paper_data.py --explain ${cell.name}`)),
    ],
  };
}

function stripsOf(cell) {
  if (cell.runs.length < 2) return [];
  return cell.samples.flatMap(([quantity, gates]) => gates.map((numbers, gate) => {
    if (new Set(numbers).size < 2) return null;
    const label = gates.length > 1 ? `${quantity} of gate ${gate}` : quantity;
    const low = Math.min(...numbers), high = Math.max(...numbers);
    const mine = cell.arithmetic.filter((step) => step[1] === quantity && step[2] === gate && ["mean", "median"].includes(step[0]));
    const rules = mine.map((step) => ({ at: step[4], label: "ours" }));
    const part = gates.length === 1 && mine.length === 1 ? cell.parts.find((one) => one[0].split(".").pop() === mine[0][0] && (one[0] === mine[0][0] || one[0].startsWith(quantity))) : null;
    if (part) rules.push({ at: part[1], label: "published", kind: "published" });
    const plot = new Plot({
      label: `${label}, one point per seed`, height: 170,
      x: { label, log: low > 0 && high / low > 30 }, y: { label: "seed", log: false },
      bands: part ? [{ low: part[2], high: part[3] }] : [], rules,
      series: [{ name: "each seed", mark: "dots", x: numbers, y: cell.runs.map((at) => DATA.runs[at].seed), links: cell.runs.map(hashOfRun) }],
    });
    const key = part ? `Solid line: our ${mine[0][0]}; dashed line: published; shaded: the interval of the ${mine[0][0]}.` : mine.length ? `Solid line: our ${mine[0][0]}.` : null;
    return [plot.node, key && element("p", { class: "note" }, key)];
  })).flat().filter(Boolean);
}

function arithmeticOf(cell) {
  if (!cell.arithmetic.length) return [];
  const lines = cell.arithmetic.map(([statistic, quantity, gate, gates, result]) => {
    const numbers = cell.samples.find(([name]) => name === quantity)[1][gate];
    const which = gates > 1 ? ` of gate ${gate}` : "";
    return element("li", {}, `${statistic} of ${quantity}${which}: (${numbers.join(", ")}) = ${result}`);
  });
  return [element("h3", {}, "Arithmetic"), element("ul", { class: "plain mono" }, lines)];
}

function recordsOf(cell) {
  if (!cell.runs.length) return [];
  const beside = new Map(cell.beside.map(([place, at]) => [place, at]));
  const columns = cell.samples.flatMap(([quantity, gates]) => gates.map((numbers, gate) => [gates.length > 1 ? `${quantity}[${gate}]` : quantity, numbers]));
  const heads = ["seed", ...columns.map(([name]) => name), "record", ...(beside.size ? ["with"] : []), "commit"];
  const rows = cell.runs.map((at, place) => {
    const run = DATA.runs[at];
    const other = beside.get(place);
    const more = beside.size ? [other === undefined ? "" : link(hashOfRun(other), DATA.runs[other].id)] : [];
    return [String(run.seed), ...columns.map(([, numbers]) => String(numbers[place])), link(hashOfRun(at), run.id), ...more, element("code", {}, commitOf(run))];
  });
  return [element("h3", {}, `Records (${rows.length})`), table(heads, rows, "records behind this cell")];
}

// a record

function configOf(run) {
  const config = { ...DATA.bases[run.base], ...run.change };
  for (const key of run.gone ?? []) delete config[key];
  return { ...config, "seed.value": run.seed };
}

function flat(nested, prefix = "") {
  return Object.entries(nested).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? flat(value, `${prefix}${name}.`) : [[prefix + name, value]]);
}

function runView(id) {
  const run = DATA.runs[RUN_AT.get(id)];
  if (!run) return null;
  const about = Object.fromEntries(["code", "data", "execution", "hardware", "packages"].map((key) => [key, DATA.about[run[key]]]));
  const code = about.code;
  return {
    title: run.id,
    kind: "record",
    body: [
      pairs([
        ["file", run.path], ["status", run.status], ["seed", String(run.seed)],
        ["commit", element("code", {}, code.commit ?? "unknown")], ["tree", code.clean ? "clean" : "uncommitted changes"],
        ["started", run.started], ["seconds", digits(run.seconds)], ["data", about.data.provenance], ["note", run.fault],
      ]),
      ...phasesOf(run),
      ...coursesOf(run),
      ...usedBy(RUN_AT.get(id)),
      fold("Configuration", flat(configOf(run))),
      fold("Data, code, hardware, packages", Object.entries(about).flatMap(([name, block]) => flat(block, `${name}.`))),
    ],
  };
}

function fold(title, entries) {
  return element("details", {}, element("summary", {}, title), table(["key", "value"], entries.map(([key, value]) => [key, shown(value)]), title));
}

function phasesOf(run) {
  const phases = Object.entries(run.phases).map(([name, phase]) => [name, new Map(flat(phase))]);
  const keys = [...new Set(phases.flatMap(([, phase]) => [...phase.keys()]))];
  const rows = keys.map((key) => [key, ...phases.map(([, phase]) => (phase.has(key) ? shown(phase.get(key)) : ""))]);
  return [element("h3", {}, "Results"), table(["", ...phases.map(([name]) => name)], rows, "results by phase")];
}

function coursesOf(run) {
  if (!run.courses) return [element("p", { class: "note" }, run.stored ? "Its curves are stored beside the record; this page leaves them out to stay small." : "No curves are stored for this run.")];
  const made = run.courses.flatMap(({ phase, steps, lines, of }) => {
    const x = DATA.steps[steps];
    const plot = (names, label, log) => {
      const series = names.map((name) => ({ name, mark: "line", x, y: lines[name] }));
      return new Plot({ label: `${phase}: ${label}`, height: 210, x: { label: "training step", log: false }, y: { label, log }, series }).node;
    };
    const losses = ["loss", "task"].filter((name) => lines[name]);
    const others = Object.keys(lines).filter((name) => !losses.includes(name));
    return [
      element("h4", {}, `${phase}, ${x.length} of ${of} stored points`),
      losses.length ? plot(losses, "loss", losses.every((name) => lines[name].every((value) => value === null || value > 0))) : null,
      others.length ? plot(others, others.length > 1 ? "value" : others[0], false) : null,
    ];
  });
  return [element("h3", {}, "Curves"), ...made];
}

function usedBy(at) {
  const { cells, figures } = usesOf(at);
  if (!cells.length && !figures.length) return [element("p", { class: "note" }, "No cell and no figure uses this record.")];
  const items = [
    ...cells.map(([key, cell]) => element("li", {}, link(`cell/${key}`, `${cell.table}: ${cell.title}`))),
    ...figures.map((figure) => element("li", {}, figure.title)),
  ];
  return [element("h3", {}, `Stands behind (${items.length})`), element("ul", { class: "plain" }, items)];
}

// a point of several records

function pointView(place) {
  const point = pointOf(place);
  const runs = point?.series.runs[point.at];
  if (!runs) return null;
  const { figure, panel, series, at } = point;
  const span = series.low && series.low[at] !== null ? `${digits(series.low[at])} to ${digits(series.high[at])}` : "";
  const rows = runs.map((run) => [String(DATA.runs[run].seed), link(hashOfRun(run), DATA.runs[run].id), element("code", {}, commitOf(DATA.runs[run]))]);
  return {
    title: `${figure.title}: ${series.name}`,
    kind: "point",
    body: [
      pairs([[panel.x.label, digits(series.x[at])], [panel.y.label, digits(series.y[at])], ["from … to", span]]),
      element("h3", {}, `Records (${rows.length})`),
      table(["seed", "record", "commit"], rows, "records behind this point"),
    ],
  };
}
