"use strict";
// What all of the page shares: the told runs, colours by theme, small makers of elements, what the reader has chosen.

const told = JSON.parse(document.getElementById("told").textContent);
const $ = (id) => document.getElementById(id);
const LIGHT = ["#2f66c9", "#c9473f", "#1f8a70", "#c77d0a", "#7a55b0", "#4d7a1f", "#b24a8f", "#0e86a8", "#8a5a33", "#5f6b7a"];
const DARK = ["#7fabff", "#f2857c", "#58c9a8", "#f0b455", "#b99aea", "#a2cf6b", "#eb8fc9", "#5fc9e6", "#cf9f77", "#a7b3c0"];
const BOUNDS = new Set(["isolated", "centralised"]);
const chosen = { setting: "", hidden: new Set() };

const dark = () => document.documentElement.dataset.theme === "dark";
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const methods = [...new Set(told.runs.map((r) => r.method))];
const bounds = new Set(told.runs.filter((r) => BOUNDS.has(r.settings["algorithm.type"])).map((r) => r.method));
const isBound = (method) => bounds.has(method);

function colour(method) {
  if (isBound(method)) return ink("--soft");
  const ranked = methods.filter((m) => !isBound(m));
  const palette = dark() ? DARK : LIGHT;
  return palette[ranked.indexOf(method) % palette.length];
}

function element(kind, attributes = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

function options(select, entries, picked) {
  select.replaceChildren(...entries.map(([value, text]) => element("option", value === picked ? { value, selected: "" } : { value }, text)));
}

function figure(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  if (size >= 1000) return Math.round(number).toLocaleString("en");
  return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

// A mean and its deviation with as many digits as each other.
function spreadOf(middle, around) {
  if (around === null || around === undefined) return figure(middle);
  const digits = Math.abs(middle) >= 100 ? 0 : Math.abs(middle) >= 10 ? 1 : 2;
  return `${middle.toFixed(digits)} ± ${around.toFixed(digits)}`;
}

const megabytes = (run) => (run.summary.bytes ? (run.summary.bytes.payload_up + run.summary.bytes.payload_down) / 1e6 : null);
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
function deviation(values) {
  if (values.length < 2) return 0;
  const middle = mean(values);
  return Math.sqrt(values.reduce((sum, v) => sum + (v - middle) ** 2, 0) / (values.length - 1));
}

const inSetting = () => told.runs.filter((r) => r.setting === chosen.setting || r.settings_too?.includes(chosen.setting));
const shown = () => inSetting().filter((r) => !chosen.hidden.has(r.method));
const seedsOf = (runs) => new Set(runs.map((r) => r.seed)).size;
const label = (run) => [run.setting, run.method, seedsOf(told.runs) > 1 ? `seed ${run.seed}` : ""].filter(Boolean).join(" · ");

function begin() {
  const saved = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = saved;
  const settings = [...new Set(told.runs.flatMap((r) => [r.setting, ...(r.settings_too || [])]))];
  chosen.setting = settings[0] ?? "";
  options($("setting"), settings.map((s) => [s, s || "all runs"]), chosen.setting);
  $("setting-field").hidden = settings.length < 2;
  $("seeds-field").hidden = seedsOf(told.runs) < 2;
  $("setting").addEventListener("change", (e) => { chosen.setting = e.target.value; choices(); draw(); });
  for (const id of ["metric", "smoothing", "log-x", "log-y", "seeds"]) $(id).addEventListener("input", drawCurves);
  $("theme").addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; choices(); draw(); });
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (e) => e.preventDefault()));
  window.addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; draw(); });
  glance(); resultTables(); runsTable(); settingsPart(); divisionPart(); kinPart(); weightsPart();
  choices();
  draw();
  $("contents").append(...[...document.querySelectorAll("main section:not([hidden]) h2")].map((h) =>
    element("a", { href: `#${h.closest("section").id}` }, h.textContent)));
}

function choices() {
  const runs = inSetting();
  const metrics = [...new Set(runs.flatMap((r) => Object.keys(r.curves)))];
  const picked = metrics.includes($("metric").value) ? $("metric").value : runs[0]?.headline;
  options($("metric"), metrics.map((m) => [m, m]), picked);
  const box = (method) => element("label", {},
    element("input", { type: "checkbox", value: method, ...(chosen.hidden.has(method) ? {} : { checked: "" }),
      onchange: (e) => { chosen.hidden[e.target.checked ? "delete" : "add"](method); draw(); } }),
    element("span", { class: "swatch", style: `background:${colour(method)}` }), method);
  $("methods").replaceChildren(element("legend", {}, "Runs"), ...[...new Set(runs.map((r) => r.method))].map(box));
}

function draw() { drawCurves(); drawFairness(); drawDivision(); drawKin(); drawWeights(); }

function glance() {
  const runs = told.runs.filter((r) => r.finished);
  const ranked = runs.filter((r) => !isBound(r.method) && r.final[r.headline] !== undefined);
  const facts = [];
  if (!told.benchmark && ranked.length) {
    const best = ranked.reduce((a, b) => (b.final[b.headline] > a.final[a.headline] ? b : a));
    facts.push([figure(best.final[best.headline]), `best ${best.headline}: ${best.method}`]);
    if (best.spread.worst_decile !== undefined) facts.push([figure(best.spread.worst_decile), `${best.headline} of its worst tenth of clients`]);
    facts.push([`${figure(megabytes(best))} MB`, "travelled for it, both ways"]);
  }
  if (told.benchmark) {
    const verdicts = Object.values(told.benchmark.tables).flatMap((t) => t.claims).filter((c) => c.places);
    facts.push([`${told.benchmark.runs.done} / ${told.benchmark.runs.all}`, "runs done"], [`${told.benchmark.seeds.length}`, "seeds"]);
    if (verdicts.length) facts.push([`${verdicts.filter((v) => v.held === v.places).length} / ${verdicts.length}`, "claims came out"]);
  }
  facts.push([duration(runs.reduce((sum, r) => sum + (r.summary.seconds || 0), 0)), `of running, ${told.runs.length} runs`]);
  $("glance").append(...facts.map(([big, small]) => element("div", { class: "fact" }, element("b", {}, big), element("span", {}, small))));
  const first = told.runs[0].summary;
  const words = told.benchmark ? told.benchmark.paper : [first.dataset, first.model, first.clients ? `${first.clients} clients` : ""].filter(Boolean).join(" · ");
  $("subtitle").textContent = words;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
