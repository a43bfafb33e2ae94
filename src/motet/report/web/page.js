// The report: its data, what the reader has selected, and the order in which the page is built and drawn again.

const LIGHT_PALETTE = ["#2f66c9", "#c9473f", "#1f8a70", "#c77d0a", "#7a55b0", "#4d7a1f", "#b24a8f", "#0e86a8", "#8a5a33", "#5f6b7a"];
const DARK_PALETTE = ["#7fabff", "#f2857c", "#58c9a8", "#f0b455", "#b99aea", "#a2cf6b", "#eb8fc9", "#5fc9e6", "#cf9f77", "#a7b3c0"];
const BOUND_ALGORITHMS = new Set(["isolated", "centralized"]);

const report = { title: "", runs: [], benchmark: null };
const selection = { setting: "", hiddenMethods: new Set() };
let methods = [];
let bounds = new Set();
const isBound = (method) => bounds.has(method);
const palette = () => (isDark() ? DARK_PALETTE : LIGHT_PALETTE);

function methodColor(method) {
  if (isBound(method)) return cssValue("--muted");
  const index = methods.filter((m) => !isBound(m)).indexOf(method);
  return palette()[index % palette().length];
}

// Runs

function megabytes(run) {
  const bytes = run.summary.bytes;
  if (bytes) return (bytes.payload_up + bytes.payload_down) / 1e6;
  return run.traffic ? (run.traffic.up + run.traffic.down) / 1e6 : null;
}

const countSeeds = (runs) => new Set(runs.map((run) => run.seed)).size;
const runsInSetting = () =>
  report.runs.filter((run) => run.setting === selection.setting || run.other_settings?.includes(selection.setting));
const visibleRuns = () => runsInSetting().filter((run) => !selection.hiddenMethods.has(run.method));
const isActive = (run) => run.state === "running" || run.state === "waiting";
const currentScore = (run) => run.score ?? run.curves[run.primary_metric]?.at(-1)?.[1] ?? null;

function runLabel(run) {
  return [run.setting, run.method, countSeeds(report.runs) > 1 ? `seed ${run.seed}` : ""].filter(Boolean).join(" · ");
}

// The page

function initPage() {
  initTheme(() => {
    updateControls();
    drawAll();
  });
  addListeners();
}

// Show other data, and keep what the reader has selected.
function setReport(data) {
  Object.assign(report, data);
  document.querySelector("h1").textContent = report.title;
  methods = [...new Set(report.runs.map((run) => run.method))];
  bounds = new Set(
    report.runs.filter((run) => BOUND_ALGORITHMS.has(run.settings["algorithm.type"])).map((run) => run.method),
  );
  const settings = [...new Set(report.runs.flatMap((run) => [run.setting, ...(run.other_settings || [])]))];
  if (!settings.includes(selection.setting)) selection.setting = settings[0] ?? "";
  fillSelect($("setting"), settings.map((s) => [s, s || "all runs"]), selection.setting);
  $("setting-field").hidden = settings.length < 2;
  $("seeds-field").hidden = countSeeds(report.runs) < 2;
  showResultTables();
  showInspections();
  initSettings();
  initSamples();
  initLabels();
  refresh();
}

// Draw everything that grows while a run goes on.
function refresh() {
  showOverview();
  showProgress();
  showDeployment();
  showRunsTable();
  initPartitions();
  initRelations();
  initWeights();
  updateControls();
  drawAll();
  const headings = [...document.querySelectorAll("main section:not([hidden]) h2")];
  $("contents").replaceChildren(
    ...headings.map((h) => createElement("a", { href: `#${h.closest("section").id}` }, h.textContent)),
  );
}

function addListeners() {
  $("setting").addEventListener("change", (event) => {
    selection.setting = event.target.value;
    updateControls();
    drawAll();
  });
  for (const id of ["metric", "smoothing", "log-x", "log-y", "seeds"]) $(id).addEventListener("input", drawCurves);
  $("partition-select").addEventListener("input", drawPartition);
  $("relations-select").addEventListener("input", drawRelations);
  $("weights-select").addEventListener("input", drawWeights);
  $("samples-select").addEventListener("input", showSamples);
  $("labels-select").addEventListener("input", showLabels);
  for (const id of ["first-run", "second-run"]) $(id).addEventListener("input", showSettings);
  $("copy").addEventListener("click", () =>
    navigator.clipboard?.writeText($("command").textContent).then(() => { $("copy").textContent = "Copied"; }));
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    drawAll();
  });
}

// Offer the metrics and methods of the selected setting. A metric with one point is no curve.
function updateControls() {
  const runs = runsInSetting();
  const lengths = new Map();
  for (const run of runs) for (const [name, points] of Object.entries(run.curves)) {
    lengths.set(name, Math.max(points.length, lengths.get(name) ?? 0));
  }
  const primary = runs.find((run) => run.primary_metric)?.primary_metric;
  const metrics = [...lengths.keys()].filter((name) => lengths.get(name) > 1 || name === primary);
  fillSelect($("metric"), metrics.map((m) => [m, m]), primary);
  const checkbox = (method) =>
    createElement("input", {
      type: "checkbox",
      value: method,
      ...(selection.hiddenMethods.has(method) ? {} : { checked: "" }),
      onchange: (event) => {
        selection.hiddenMethods[event.target.checked ? "delete" : "add"](method);
        drawAll();
      },
    });
  const swatch = (method) =>
    createElement("span", { class: isBound(method) ? "swatch bound" : "swatch", color: methodColor(method) });
  const names = [...new Set(runs.map((run) => run.method))];
  const labels = names.map((method) => createElement("label", {}, checkbox(method), swatch(method), method));
  if ($("methods").contains(document.activeElement)) return; // the reader is about to choose
  $("methods").replaceChildren(createElement("legend", {}, "Runs"), ...labels);
}

function drawAll() {
  drawCurves();
  drawFairness();
  drawPartition();
  drawRelations();
  drawWeights();
}

// Overview

function showOverview() {
  const facts = report.benchmark ? benchmarkFacts() : bestRunFacts();
  const seconds = report.runs.reduce((sum, run) => sum + (run.summary.seconds || run.seconds || 0), 0);
  facts.push([formatDuration(seconds), `total time of ${countOf(report.runs.length, "run")}`]);
  const card = ([value, text]) =>
    createElement("div", { class: "fact" }, createElement("b", {}, value), createElement("span", {}, text));
  $("overview").replaceChildren(...facts.map(card));
  const { dataset, model, clients } = report.runs[0]?.summary ?? {};
  const description = [dataset, model, clients ? `${clients} clients` : ""].filter(Boolean).join(" · ");
  $("subtitle").textContent = report.benchmark ? report.benchmark.paper : description;
}

function benchmarkFacts() {
  const { runs, seeds, tables } = report.benchmark;
  const claims = Object.values(tables).flatMap((table) => table.claims).filter((claim) => claim.compared);
  const facts = [[`${runs.done} / ${runs.all}`, "runs done"], [`${seeds.length}`, "seeds"]];
  const shown = claims.filter((claim) => claim.verdict === "shown");
  if (claims.length) facts.push([`${shown.length} / ${claims.length}`, "claims of the paper are shown"]);
  return facts;
}

function bestRunFacts() {
  const ranked = report.runs.filter((run) => !isBound(run.method) && typeof currentScore(run) === "number");
  if (!ranked.length) return [];
  const best = ranked.reduce((a, b) => (currentScore(b) > currentScore(a) ? b : a));
  const rank = ranked.length > 1 ? "best" : isActive(best) ? "current" : best.finished ? "final" : "last";
  const owner = best.score_split === "local" ? " of personal models" : "";
  const facts = [[formatNumber(currentScore(best)), `${rank} ${best.primary_metric}${owner}: ${best.method}`]];
  const worst = best.client_spread.worst_decile;
  if (worst !== undefined) facts.push([formatNumber(worst), `${best.primary_metric} of its worst 10 % of clients`]);
  facts.push([formatBytes(1e6 * (megabytes(best) ?? 0)), "sent, up and down"]);
  const epsilon = best.curves["ε spent"]?.at(-1)[1];
  if (epsilon !== undefined) {
    facts.push([`ε = ${formatNumber(epsilon)}`, best.budget ? `spent of a budget of ${best.budget}` : "spent, without a budget"]);
  }
  return facts;
}
