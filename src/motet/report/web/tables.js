// Tables, sortable by their headings with mouse or keyboard.

// A cell is a string, a number, or {text, small, class, sort}.
function sortableTable(headings, rows, { alignLeft = false, rowClass = () => "" } = {}) {
  const body = createElement("tbody");
  const fillBody = (sorted) =>
    body.replaceChildren(...sorted.map((row) => createElement("tr", { class: rowClass(row) }, ...row.map(tableCell))));
  const sortButton = (text, column) => createElement("button", { type: "button", onclick: (e) => sortBy(e, column) }, text);
  const head = createElement(
    "tr", {}, ...headings.map((text, i) => createElement("th", { scope: "col" }, sortButton(text, i))),
  );
  function sortBy(event, column) {
    const heading = event.target.closest("th");
    const descending = heading.getAttribute("aria-sort") === "ascending";
    head.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const key = (row) => {
      const value = row[column];
      return value !== null && typeof value === "object" ? value.sort : value;
    };
    fillBody([...rows].sort((a, b) => (descending ? -1 : 1) * compareValues(key(a), key(b))));
  }
  fillBody(rows);
  return createElement("table", alignLeft ? { class: "left" } : {}, createElement("thead", {}, head), body);
}

function compareValues(a, b) {
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function tableCell(value, column) {
  const tag = column === 0 ? "th" : "td";
  const scope = column === 0 ? { scope: "row" } : {};
  if (value !== null && typeof value === "object") {
    const small = value.small ? createElement("small", {}, ` ${value.small}`) : null;
    return createElement(tag, { ...scope, class: value.class ?? "" }, value.text, small);
  }
  return createElement(tag, scope, typeof value === "number" ? formatNumber(value) : value ?? "–");
}

const scrollable = (table, extraClass = "") => createElement("div", { class: `scroll ${extraClass}` }, table);

// Result tables of a benchmark

function showResultTables() {
  if (!report.benchmark) return;
  const section = $("results");
  section.hidden = false;
  section.replaceChildren(createElement("h2", {}, "Results"));
  const seeds = report.benchmark.seeds.length;
  const entries = Object.values(report.benchmark.tables).flatMap((table) => Object.values(table.cells).flatMap(Object.values));
  const isAboutMethods = entries.some((entry) => entry.is_best);
  const legend = [
    `Mean ± standard deviation over ${countOf(seeds, "seed")}`,
    ...(isAboutMethods
      ? [
        "shaded: best mean of the column",
        "≈: not significantly different from the best, which does not mean equal (t-test over seeds and test examples, Holm's correction, p ≥ 0.05)",
      ]
      : ["too few seeds to say which method is best; differences are about these trained models"]),
    "in parentheses: the paper's number",
    "†: not all seeds have this number",
    ...(entries.some((entry) => entry.is_outdated) ? ["‡: made with another version of Motet"] : []),
    "italic: bounds, not ranked",
  ];
  section.append(createElement("p", { class: "legend" }, `${legend.join("; ")}.`));
  for (const table of Object.values(report.benchmark.tables)) {
    const rows = [...table.rows, ...table.bounds].map((row) => [
      { text: row, sort: row, isBound: table.bounds.includes(row) },
      ...table.columns.map((column) => resultCell(table.cells[row][column])),
    ]);
    const rowClass = (row) => (row[0].isBound ? "bound" : "");
    section.append(createElement("h3", {}, table.title));
    section.append(scrollable(sortableTable(["method", ...table.columns], rows, { rowClass })));
    const differences = differenceRows(table);
    if (differences.length) {
      section.append(createElement("p", { class: "note" }, "Differences from the best of the column, with 95 % intervals:"));
      section.append(scrollable(sortableTable(["minus the best", ...table.columns], differences)));
    }
    const metrics = table.metric_details ? `Metrics: ${table.metric_details}.` : "";
    const software = table.software ? `Made with ${table.software}.` : "";
    const caveats = table.caveats?.length ? `Compare with care. ${table.caveats.join(" ")}` : "";
    for (const note of [caveats, table.note, metrics, software].filter(Boolean)) section.append(createElement("p", { class: "note" }, note));
    const claims = table.claims.filter((claim) => claim.compared);
    if (claims.length) section.append(createElement("ul", { class: "claims" }, ...claims.map(claimItem)));
  }
}

function differenceRows(table) {
  return table.rows
    .filter((row) => table.columns.some((column) => table.cells[row][column].difference))
    .map((row) => [row, ...table.columns.map((column) => table.cells[row][column].difference || "–")]);
}

function resultCell(entry) {
  const small = entry.published === null ? "" : `(${entry.published})`;
  if (entry.mean === null) return { text: "–", sort: null, small };
  const partial = entry.is_partial ? ` † ${entry.values.length} of ${entry.expected}` : "";
  const marks = (entry.is_tied ? " ≈" : "") + partial + (entry.is_outdated ? " ‡" : "");
  const text = formatMeanStd(entry.mean, entry.std) + marks;
  return { text, sort: entry.mean, class: entry.is_best ? "best" : "", small };
}

const CLAIM_MARKS = { shown: "✓ ", "not shown": "○ ", contradicted: "✗ " };

function claimItem(claim) {
  const mark = createElement("span", { class: claim.verdict.replace(" ", "-") }, CLAIM_MARKS[claim.verdict]);
  return createElement("li", {}, mark, claim.text);
}

// All runs

function showRunsTable() {
  const hasDev = report.runs.some((run) => run.dev_best);
  const headings = [
    "run", "state", "score", ...(hasDev ? ["best on dev"] : []), "metric", "client mean", "worst 10 %", "MB", "seconds",
  ];
  const rows = report.runs.map((run) => [
    runLabel(run),
    run.state ?? (run.finished ? "finished" : "–"),
    currentScore(run),
    ...(hasDev ? [run.dev_best?.test[run.primary_metric] ?? null] : []),
    run.score_split === "local" ? `${run.primary_metric} of personal models` : run.primary_metric,
    run.client_spread.mean ?? null,
    run.client_spread.worst_decile ?? null,
    megabytes(run),
    run.summary.seconds ?? run.seconds ?? null,
  ]);
  const comparison = report.comparison ? createElement("p", {}, report.comparison) : "";
  $("runs").replaceChildren(createElement("h2", {}, "Runs"), scrollable(sortableTable(headings, rows), "tall"), comparison);
}

// Inspections of the corpora. Runs on the same data share one; otherwise each names its runs.

function showInspections() {
  const inspections = new Map();
  for (const run of report.runs) {
    for (const inspection of run.inspections ?? []) {
      const key = JSON.stringify(inspection);
      if (!inspections.has(key)) inspections.set(key, { ...inspection, runs: [] });
      inspections.get(key).runs.push(runLabel(run));
    }
  }
  const section = $("inspection");
  section.hidden = !inspections.size;
  section.replaceChildren(createElement("h2", {}, "Data inspection"));
  for (const { title, rows, findings, runs } of inspections.values()) {
    const isRepeated = [...inspections.values()].filter((other) => other.title === title).length > 1;
    section.append(createElement("h3", {}, isRepeated ? `${title}: ${runs.join(", ")}` : title));
    if (findings.length) section.append(createElement("ul", {}, ...findings.map((text) => createElement("li", {}, text))));
    section.append(scrollable(sortableTable(["what", "in this corpus"], rows, { alignLeft: true })));
  }
}

// Settings of one run, compared with another

function initSettings() {
  const entries = report.runs.map((run, i) => [String(i), runLabel(run)]);
  fillSelect($("first-run"), entries, "0");
  fillSelect($("second-run"), entries, String(Math.min(1, report.runs.length - 1)));
  for (const part of [$("first-run").closest("form"), $("differences")]) part.hidden = report.runs.length < 2;
  showSettings();
}

function showSettings() {
  const [first, second] = [$("first-run"), $("second-run")].map((select) => report.runs[Number(select.value)]);
  const keys = [...new Set([...Object.keys(first.settings), ...Object.keys(second.settings)])];
  const differences = keys.filter((key) => key !== "recipe" && first.settings[key] !== second.settings[key]);
  const rows = differences.map((key) => [key, first.settings[key] ?? "–", second.settings[key] ?? "–"]);
  const headings = ["setting", runLabel(first), runLabel(second)];
  const sameText = first === second ? "Select two different runs to compare them." : "Both runs have the same settings.";
  $("differences").replaceChildren(
    rows.length
      ? scrollable(sortableTable(headings, rows, { alignLeft: true }))
      : createElement("p", { class: "note" }, sameText),
  );
  $("config").textContent = first.config;
  $("command").textContent = first.command;
  const environment = Object.entries(first.environment);
  $("environment").replaceChildren();
  if (!environment.length) return; // it is written at the end of a run
  const table = sortableTable(["name", "value"], environment, { alignLeft: true });
  $("environment").append(createElement("h3", {}, "Environment"), scrollable(table));
}

// What a model wrote before and after training

function initSamples() {
  const runs = runsWithSamples();
  $("samples").hidden = !runs.length;
  fillSelect($("samples-select"), runs.map((run, i) => [String(i), runLabel(run)]), "0");
  $("samples-select").closest("form").hidden = runs.length < 2;
  if (runs.length) showSamples();
}

const runsWithSamples = () => report.runs.filter((run) => run.samples?.length);

function showSamples() {
  const { samples } = runsWithSamples()[Number($("samples-select").value)];
  const rows = samples.map((s) => [s.prompt, s.reference, s.before ?? "–", s.after ?? "–"]);
  const table = sortableTable(["prompt", "reference", "before training", "after training"], rows, { alignLeft: true });
  table.classList.add("texts");
  $("samples-table").replaceChildren(scrollable(table));
}

const MAX_MATRIX_LABELS = 20; // a larger confusion matrix is wider than a page

function initLabels() {
  const runs = runsWithLabels();
  $("labels").hidden = !runs.length;
  fillSelect($("labels-select"), runs.map((run, i) => [String(i), runLabel(run)]), "0");
  $("labels-select").closest("form").hidden = runs.length < 2;
  if (runs.length) showLabels();
}

const runsWithLabels = () => report.runs.filter((run) => Object.keys(run.labels ?? {}).length);

// The scores of each label and, if there are not too many, what each label is predicted as.
function showLabels() {
  const count = (value) => ({ text: String(value), sort: value });
  const { labels: groups } = runsWithLabels()[Number($("labels-select").value)];
  const parts = Object.entries(groups).flatMap(([group, { labels, scores, counts }]) => {
    const rows = Object.entries(scores).map(([label, s]) => [
      label, ...[s.precision, s.recall, s.f1].map((value) => ({ text: value.toFixed(3), sort: value })), count(s.support),
    ]);
    const title = group ? [createElement("h3", {}, group)] : [];
    const table = scrollable(sortableTable(["label", "precision", "recall", "F1", "examples"], rows));
    if (labels.length > MAX_MATRIX_LABELS) return [...title, table];
    const matrix = sortableTable(["true label", ...labels.map((l) => `predicted ${l}`)], labels.map((l, i) => [l, ...counts[i].map(count)]));
    return [...title, table, scrollable(matrix)];
  });
  $("labels-tables").replaceChildren(...parts);
}
