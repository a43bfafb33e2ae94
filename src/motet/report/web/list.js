// The list of all runs in a folder. Rows stay in place when their numbers change, so that a reader can select them.

const rows = new Map(); // by the name of the run
const selected = new Set();
const STATES = { all: "all", running: "running", finished: "finished", failed: "failed", interrupted: "interrupted" };
let entries = [];

const reportAddress = (names) => `report?${new URLSearchParams(names.map((name) => ["run", name]))}`;

function initList() {
  initTheme(showList);
  fillSelect($("state-filter"), Object.entries(STATES), "all");
  for (const id of ["state-filter", "name-filter"]) $(id).addEventListener("input", showList);
  document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  keepLooking(async () => {
    ({ entries } = await ask("api/runs"));
    showList();
    return entries.some((entry) => entry.state === "running");
  });
}

function showList() {
  const runs = entries.filter((entry) => entry.kind === "run");
  const benchmarks = entries.filter((entry) => entry.kind === "benchmark");
  const running = runs.filter((run) => run.state === "running").length;
  $("subtitle").textContent = [countOf(runs.length, "run"), running ? `${running} running` : ""].filter(Boolean).join(", ");
  const shown = runs.filter(isShown);
  const own = shown.filter((run) => !run.benchmark);
  place($("runs-list"), own.map(updateRow));
  place($("benchmarks"), benchmarks.map((entry) => updateBenchmark(entry, shown.filter((run) => run.benchmark === entry.id))));
  $("empty").hidden = own.length > 0 || benchmarks.length > 0;
  $("empty").textContent = runs.length ? "No run has this state and name." : "There are no runs yet. They appear here when they start.";
  showComparison(runs);
}

// Move elements only if their order has changed: a moved element loses the focus.
function place(parent, children) {
  const isSame = children.length === parent.children.length && children.every((c, i) => c === parent.children[i]);
  if (!isSame) parent.replaceChildren(...children);
}

function isShown(run) {
  const state = $("state-filter").value, text = $("name-filter").value.toLowerCase();
  return (state === "all" || run.state === state) && `${run.id} ${run.algorithm} ${run.dataset}`.toLowerCase().includes(text);
}

function showComparison(runs) {
  const names = runs.map((run) => run.id).filter((id) => selected.has(id));
  $("compare").hidden = names.length < 2;
  $("compare").textContent = `Compare ${names.length} runs`;
  $("compare").href = reportAddress(names);
}

// One run

function updateRow(run) {
  if (!rows.has(run.id)) rows.set(run.id, createRow(run.id));
  const row = rows.get(run.id);
  const text = JSON.stringify([run, isDark()]);
  if (row.shown !== text) {
    row.shown = text;
    row.body.replaceChildren(nameCell(run), stateCell(run), trendCell(run), scoreCell(run), timeCell(run));
  }
  return row.element;
}

function createRow(id) {
  const checkbox = createElement("input", {
    type: "checkbox",
    "aria-label": `select ${id} for a comparison`,
    onchange: (event) => {
      selected[event.target.checked ? "add" : "delete"](id);
      showList();
    },
  });
  const body = createElement("div", { class: "run-body" });
  return { element: createElement("div", { class: "run-row", role: "listitem" }, checkbox, body), body, shown: "" };
}

function nameCell(run) {
  const name = run.benchmark ? run.id.split("/").at(-1) : run.id;
  const facts = [run.algorithm, run.dataset, run.model].filter(Boolean).join(" · ");
  return createElement(
    "div", { class: "run-name" },
    createElement("a", { href: reportAddress([run.id]) }, name), createElement("span", { class: "note" }, facts),
  );
}

function stateCell(run) {
  const parts = [createElement("div", {}, stateBadge(run.state))];
  if (run.state !== "finished" && run.rounds) parts.push(progressBar(run.round, run.rounds, `rounds of ${run.id}`));
  const lines = [
    run.rounds ? `round ${run.round} of ${run.rounds}` : "",
    run.baselines ? `${run.baselines_done} of ${run.baselines} baselines` : "",
    run.deployment ? describeClients(run.deployment) : "",
    run.reason ?? "",
  ];
  parts.push(...lines.filter(Boolean).map((line) => createElement("span", { class: "note" }, line)));
  return createElement("div", { class: "run-state" }, ...parts);
}

function describeClients({ connected = 0, away = [] }) {
  return `${connected} connected${away.length ? `, missing: ${away.join(", ")}` : ""}`;
}

function trendCell(run) {
  const values = run.trend ?? [];
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "trend");
  svg.setAttribute("viewBox", "0 0 100 30");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  if (values.length > 1) {
    const low = Math.min(...values), span = Math.max(Math.max(...values) - low, 1e-9);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", values.map((v, i) => `${(100 * i) / (values.length - 1)},${28 - (26 * (v - low)) / span}`).join(" "));
    svg.append(line);
  }
  return svg;
}

function scoreCell(run) {
  const details = [run.metric, run.epsilon === undefined ? "" : `ε\u00a0=\u00a0${formatNumber(run.epsilon)}`].filter(Boolean).join(", ");
  return createElement(
    "div", { class: "run-score" }, createElement("b", {}, formatNumber(run.score)), createElement("span", { class: "note" }, details),
  );
}

function timeCell(run) {
  const isGoing = run.seconds_left !== null && run.seconds_left !== undefined;
  const time = isGoing ? `${formatDuration(run.seconds_left)} left` : run.seconds ? formatDuration(run.seconds) : "";
  const when = run.updated ? formatTime(new Date(1000 * run.updated)) : "";
  return createElement(
    "div", { class: "run-time" }, createElement("span", {}, time),
    createElement("span", { class: "note" }, [run.bytes ? formatBytes(run.bytes) : "", when].filter(Boolean).join(" · ")),
  );
}

function formatTime(date) {
  const isToday = date.toDateString() === new Date().toDateString();
  const day = isToday ? {} : { day: "numeric", month: "short" };
  return date.toLocaleString("en-GB", { ...day, hour: "2-digit", minute: "2-digit" });
}

// One benchmark, with its runs folded

function updateBenchmark(entry, runs) {
  const key = `benchmark ${entry.id}`;
  if (!rows.has(key)) rows.set(key, createBenchmark(entry));
  const { element, head, list, shown } = rows.get(key);
  const text = JSON.stringify(entry);
  if (shown !== text) {
    rows.get(key).shown = text;
    head.replaceChildren(...benchmarkHead(entry));
  }
  place(list, runs.map(updateRow));
  return element;
}

function createBenchmark(entry) {
  const head = createElement("div", { class: "benchmark-head" });
  const list = createElement("div", { role: "list" });
  const details = createElement("details", {}, createElement("summary", {}, "Runs of this benchmark"), list);
  return { element: createElement("section", { class: "benchmark", "aria-label": entry.id }, head, details), head, list, shown: "" };
}

function benchmarkHead({ id, title, state, counts, reason }) {
  const address = `report?${new URLSearchParams([["benchmark", id]])}`;
  const name = counts?.finished ? createElement("a", { href: address }, title) : createElement("b", {}, title ?? id);
  const done = counts ? `${counts.finished ?? 0} of ${counts.all} runs done` : "";
  const others = ["running", "failed"].filter((each) => counts?.[each]).map((each) => `${counts[each]} ${each}`);
  return [
    createElement("div", {}, name, " ", stateBadge(state)),
    counts ? progressBar(counts.finished ?? 0, counts.all, `runs of ${id}`) : null,
    createElement("span", { class: "note" }, [id, done, ...others, reason ?? ""].filter(Boolean).join(" · ")),
  ].filter(Boolean);
}

initList();
