// The tables: sortable by their headings, with a mouse or a keyboard.

function sortable(heads, rows, { left = false, classes = () => "" } = {}) {
  const body = element("tbody");
  const fill = (ordered) => body.replaceChildren(...ordered.map((row) => element("tr", { class: classes(row) }, ...row.map((value, i) => cell(value, i)))));
  const head = element("tr", {}, ...heads.map((text, i) => element("th", { scope: "col" }, element("button", { type: "button", onclick: (e) => sort(e, i) }, text))));
  function sort(event, column) {
    const heading = event.target.closest("th");
    const down = heading.getAttribute("aria-sort") === "ascending";
    head.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => { const v = row[column]; return v !== null && typeof v === "object" ? v.sort : v; };
    fill([...rows].sort((a, b) => (down ? -1 : 1) * compare(key(a), key(b))));
  }
  fill(rows);
  return element("table", left ? { class: "left" } : {}, element("thead", {}, head), body);
}

function compare(a, b) {
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

// A value: a text, a number, or {text, small, class, sort}.
function cell(value, place) {
  const kind = place === 0 ? "th" : "td";
  const scope = place === 0 ? { scope: "row" } : {};
  if (value !== null && typeof value === "object") {
    return element(kind, { ...scope, class: value.class ?? "" }, value.text, value.small ? element("small", {}, ` ${value.small}`) : null);
  }
  return element(kind, scope, typeof value === "number" ? figure(value) : value ?? "–");
}

function resultTables() {
  if (!told.benchmark) return;
  $("results").hidden = false;
  const tables = Object.values(told.benchmark.tables);
  const marks = ["shaded: the best method of a column", "≈: not told apart from the best (paired bootstrap over test items, p ≥ 0.05)", "in brackets: the paper's number", "†: not all seeds", "italic: bounds, not ranked"];
  $("results").append(element("p", { class: "legend" }, `Mean ± deviation over ${told.benchmark.seeds.length} seed${told.benchmark.seeds.length > 1 ? "s" : ""}; ${marks.join("; ")}.`));
  for (const table of tables) {
    const rows = [...table.rows, ...table.bounds].map((row) => [{ text: row, sort: row, bound: table.bounds.includes(row) }, ...table.columns.map((column) => result(table.cells[row][column]))]);
    $("results").append(element("h3", {}, table.title), element("div", { class: "scroll" },
      sortable(["method", ...table.columns], rows, { classes: (row) => (row[0].bound ? "bound" : "") })));
    if (table.note) $("results").append(element("p", { class: "note" }, table.note));
    const verdicts = table.claims.filter((c) => c.places).map((c) => element("li", {},
      element("span", { class: c.held === c.places ? "yes" : "no" }, c.held === c.places ? "✓ came out: " : "✗ did not: "), c.claim,
      c.places > 1 ? ` (${c.held} of ${c.places})` : "", c.against.length ? `: ${c.against.join("; ")}` : ""));
    if (verdicts.length) $("results").append(element("ul", { class: "verdicts" }, ...verdicts));
  }
}

function result(entry) {
  if (entry.mean === null) return { text: "–", sort: null, small: entry.published === null ? "" : `(${entry.published})` };
  const text = spreadOf(entry.mean, entry.deviation) + (entry.tied ? " ≈" : "") + (entry.partial ? " †" : "");
  return { text, sort: entry.mean, class: entry.best ? "best" : "", small: entry.published === null ? "" : `(${entry.published})` };
}

function runsTable() {
  const dev = told.runs.some((r) => r.dev_best);
  const heads = ["run", "score", ...(dev ? ["best on dev"] : []), "its metric", "clients' own", "worst tenth", "MB", "seconds"];
  const rows = told.runs.map((r) => [label(r), r.final[r.headline] ?? null, ...(dev ? [r.dev_best?.test[r.headline] ?? null] : []), r.headline, r.spread.mean ?? null, r.spread.worst_decile ?? null, megabytes(r), r.summary.seconds ?? null]);
  $("runs").append(element("div", { class: "scroll tall" }, sortable(heads, rows)));
}

function settingsPart() {
  const entries = told.runs.map((r, i) => [String(i), label(r)]);
  options($("first-run"), entries, "0");
  options($("second-run"), entries, String(Math.min(1, told.runs.length - 1)));
  $("first-run").addEventListener("input", settingsShown);
  $("second-run").addEventListener("input", settingsShown);
  $("copy").addEventListener("click", () => navigator.clipboard?.writeText($("command").textContent).then(() => { $("copy").textContent = "Copied"; }));
  settingsShown();
}

function settingsShown() {
  const [one, two] = [$("first-run"), $("second-run")].map((s) => told.runs[Number(s.value)]);
  const keys = [...new Set([...Object.keys(one.settings), ...Object.keys(two.settings)])].filter((k) => k !== "recipe" && one.settings[k] !== two.settings[k]);
  const rows = keys.map((k) => [k, one.settings[k] ?? "–", two.settings[k] ?? "–"]);
  $("differences").replaceChildren(rows.length ? element("div", { class: "scroll" }, sortable(["setting", label(one), label(two)], rows, { left: true })) : element("p", { class: "note" }, one === two ? "One run is compared with itself." : "The two have the same settings."));
  $("config").textContent = one.config;
  $("command").textContent = one.command;
  $("environment").replaceChildren(element("div", { class: "scroll" }, sortable(["what", "which"], Object.entries(one.environment), { left: true })));
}
