"use strict";
// Shared state and helpers: the report data, colors, DOM helpers, number formats, and what the reader has selected.

const report = JSON.parse(document.getElementById("data").textContent);
const LIGHT_PALETTE = ["#2f66c9", "#c9473f", "#1f8a70", "#c77d0a", "#7a55b0", "#4d7a1f", "#b24a8f", "#0e86a8", "#8a5a33", "#5f6b7a"];
const DARK_PALETTE = ["#7fabff", "#f2857c", "#58c9a8", "#f0b455", "#b99aea", "#a2cf6b", "#eb8fc9", "#5fc9e6", "#cf9f77", "#a7b3c0"];
const BOUND_ALGORITHMS = new Set(["isolated", "centralized"]);

const selection = { setting: "", hiddenMethods: new Set() };
const methods = [...new Set(report.runs.map((run) => run.method))];
const bounds = new Set(
  report.runs.filter((run) => BOUND_ALGORITHMS.has(run.settings["algorithm.type"])).map((run) => run.method),
);
const isBound = (method) => bounds.has(method);

// DOM and colors

const $ = (id) => document.getElementById(id);
const isDark = () => document.documentElement.dataset.theme === "dark";
const isNarrow = () => window.innerWidth < 600;
const cssValue = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const palette = () => (isDark() ? DARK_PALETTE : LIGHT_PALETTE);

function methodColor(method) {
  if (isBound(method)) return cssValue("--muted");
  const index = methods.filter((m) => !isBound(m)).indexOf(method);
  return palette()[index % palette().length];
}

function createElement(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function fillSelect(select, entries, selected) {
  const option = ([value, text]) =>
    createElement("option", value === selected ? { value, selected: "" } : { value }, text);
  select.replaceChildren(...entries.map(option));
}

// Numbers

const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

function std(values) {
  if (values.length < 2) return 0;
  const center = mean(values);
  return Math.sqrt(values.reduce((sum, v) => sum + (v - center) ** 2, 0) / (values.length - 1));
}

function formatNumber(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  if (size >= 1000) return Math.round(number).toLocaleString("en");
  return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

// The mean and the standard deviation get the same number of decimals.
function formatMeanStd(center, deviation) {
  if (deviation === null || deviation === undefined) return formatNumber(center);
  const digits = Math.abs(center) >= 100 ? 0 : Math.abs(center) >= 10 ? 1 : 2;
  return `${center.toFixed(digits)} ± ${deviation.toFixed(digits)}`;
}

const countOf = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function formatDuration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// Runs

function megabytes(run) {
  const bytes = run.summary.bytes;
  return bytes ? (bytes.payload_up + bytes.payload_down) / 1e6 : null;
}

const countSeeds = (runs) => new Set(runs.map((run) => run.seed)).size;
const runsInSetting = () =>
  report.runs.filter((run) => run.setting === selection.setting || run.other_settings?.includes(selection.setting));
const visibleRuns = () => runsInSetting().filter((run) => !selection.hiddenMethods.has(run.method));

function runLabel(run) {
  return [run.setting, run.method, countSeeds(report.runs) > 1 ? `seed ${run.seed}` : ""].filter(Boolean).join(" · ");
}

// The page

function initialize() {
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = prefersDark ? "dark" : "light";
  const settings = [...new Set(report.runs.flatMap((run) => [run.setting, ...(run.other_settings || [])]))];
  selection.setting = settings[0] ?? "";
  fillSelect($("setting"), settings.map((s) => [s, s || "all runs"]), selection.setting);
  $("setting-field").hidden = settings.length < 2;
  $("seeds-field").hidden = countSeeds(report.runs) < 2;
  addListeners();
  showOverview();
  showResultTables();
  showRunsTable();
  showInspections();
  initSettings();
  initPartitions();
  initRelations();
  initWeights();
  initSamples();
  updateControls();
  drawAll();
  const headings = [...document.querySelectorAll("main section:not([hidden]) h2")];
  $("contents").append(
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
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    updateControls();
    drawAll();
  });
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    drawAll();
  });
}

// Offer the metrics and methods of the selected setting.
function updateControls() {
  const runs = runsInSetting();
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  const selected = metrics.includes($("metric").value) ? $("metric").value : runs[0]?.primary_metric;
  fillSelect($("metric"), metrics.map((m) => [m, m]), selected);
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
  const swatch = (method) => createElement("span", { class: "swatch", style: `background:${methodColor(method)}` });
  const labels = [...new Set(runs.map((run) => run.method))].map((method) =>
    createElement("label", {}, checkbox(method), swatch(method), method),
  );
  $("methods").replaceChildren(createElement("legend", {}, "Runs"), ...labels);
}

function drawAll() {
  drawCurves();
  drawFairness();
  drawPartition();
  drawRelations();
  drawWeights();
}

function showOverview() {
  const finished = report.runs.filter((run) => run.finished);
  const facts = report.benchmark ? benchmarkFacts() : bestRunFacts(finished);
  const seconds = finished.reduce((sum, run) => sum + (run.summary.seconds || 0), 0);
  facts.push([formatDuration(seconds), `total time of ${countOf(report.runs.length, "run")}`]);
  const card = ([value, text]) =>
    createElement("div", { class: "fact" }, createElement("b", {}, value), createElement("span", {}, text));
  $("overview").append(...facts.map(card));
  const { dataset, model, clients } = report.runs[0].summary;
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

function bestRunFacts(runs) {
  const score = (run) => run.score;
  const ranked = runs.filter((run) => !isBound(run.method) && typeof score(run) === "number");
  if (!ranked.length) return [];
  const best = ranked.reduce((a, b) => (score(b) > score(a) ? b : a));
  const facts = [[formatNumber(score(best)), `best ${best.primary_metric}${best.score_split === "local" ? " of personal models" : ""}: ${best.method}`]];
  const worst = best.client_spread.worst_decile;
  if (worst !== undefined) facts.push([formatNumber(worst), `${best.primary_metric} of its worst 10 % of clients`]);
  facts.push([`${formatNumber(megabytes(best))} MB`, "sent, up and down"]);
  return facts;
}
