// Runs that are going on: their progress, their connected clients, and the updates that the dashboard sends.

function showProgress() {
  const unfinished = report.runs.filter((run) => run.state && run.state !== "finished");
  $("progress").hidden = !unfinished.length;
  const row = (run) => {
    const text = [`round ${run.round} of ${run.rounds}`, timeLeft(run)].filter(Boolean).join(", ");
    const reason = run.reason ? createElement("p", { class: "note" }, run.reason) : null;
    return createElement(
      "div", { class: "progress-row" },
      createElement("b", {}, runLabel(run)), stateBadge(run.state),
      progressBar(run.round, run.rounds, `rounds of ${run.method}`), createElement("span", { class: "note" }, text), reason,
    );
  };
  $("progress-list").replaceChildren(...unfinished.map(row));
}

function timeLeft(run) {
  if (run.state !== "running" || !run.round) return "";
  return `about ${formatDuration((run.seconds / run.round) * Math.max(0, run.rounds - run.round))} left`;
}

// Served runs: who is connected, who is late, and how much each client has sent and received

function showDeployment() {
  const note = "Bytes are of all messages since the server started, with evaluations. The MB of a run count its training alone.";
  const runs = report.runs.filter((run) => run.deployment);
  $("deployment").hidden = !runs.length;
  $("deployment-list").replaceChildren(...runs.flatMap((run) => [
    createElement("h3", {}, `${runLabel(run)}: ${deploymentText(run.deployment)}`),
    scrollable(clientsTable(run.deployment)),
    createElement("p", { class: "note" }, note),
  ]));
}

function deploymentText({ state, waited_for: waiting = {} }) {
  const count = state === "running" ? Object.keys(waiting).length : 0;
  return count ? `${state}, waiting for ${count} ${count === 1 ? "client" : "clients"}` : state;
}

function clientsTable(status) {
  const { connected = [], away = [], waited_for: waiting = {}, refused = {}, traffic = {} } = status;
  const names = [...new Set([...connected, ...away, ...Object.keys(traffic), ...Object.keys(refused)])].sort(compareValues);
  const elapsed = Math.max(0, Date.now() / 1000 - (status.at ?? Infinity));
  const rows = names.map((name) => [
    name,
    away.includes(name) ? { text: "missing", sort: 2, class: "fails" } : connected.includes(name) ? "connected" : "gone",
    name in waiting ? { text: formatDuration(waiting[name] + elapsed), sort: waiting[name] } : "–",
    traffic[name] ? { text: formatBytes(traffic[name].up), sort: traffic[name].up } : "–",
    traffic[name] ? { text: formatBytes(traffic[name].down), sort: traffic[name].down } : "–",
    { text: String(refused[name] ?? 0), sort: refused[name] ?? 0 },
  ]);
  return sortableTable(["client", "state", "working for", "sent to the server", "received", "rejected messages"], rows);
}

// Updates

function mergeUpdate(run, update) {
  for (const [name, points] of Object.entries(update.curves)) (run.curves[name] ??= []).push(...points);
  Object.assign(run.client_scores, update.client_scores);
  for (const [name, rounds] of Object.entries(update.notes)) for (const [round, value] of Object.entries(rounds)) {
    const known = (run.notes[name] ??= Object.create(null))[round];
    const isObject = known && typeof known === "object" && !Array.isArray(known);
    run.notes[name][round] = isObject ? { ...known, ...value } : value;
  }
  const hasNews = update.round > 0 || Object.keys(update.notes).length > 0;
  if (update.round > 0) for (const key of ["round", "seconds", "traffic", "primary_metric"]) run[key] = update[key];
  run.cursor = update.cursor;
  const isChanged = hasNews || JSON.stringify(run.deployment) !== JSON.stringify(update.deployment);
  run.deployment = update.deployment;
  return isChanged;
}

function liveQuery() {
  const { runs, benchmark } = pageData.live;
  return new URLSearchParams(benchmark ? [["benchmark", benchmark]] : runs.map((run) => ["run", run]));
}

async function loadReport() {
  setReport(await ask(`api/report?${liveQuery()}`));
}

// Ask for what is new. A run that has started, ended or gone back to a checkpoint is read again.
async function lookForUpdates() {
  if (report.benchmark) return lookForFinishedRuns();
  const watched = report.runs;
  const query = new URLSearchParams(watched.flatMap((run) => [["run", run.id], ["after", run.cursor]]));
  const { runs } = await ask(`api/updates?${query}`);
  if (watched.some((run) => runs[run.id].is_restart || runs[run.id].state !== run.state)) {
    await loadReport();
  } else {
    const changes = watched.map((run) => mergeUpdate(run, runs[run.id]));
    if (changes.some(Boolean)) refresh();
  }
  return report.runs.some(isActive);
}

// The tables of a benchmark compare all runs, which takes a while, so the reader decides when to do it again.
async function lookForFinishedRuns() {
  const { entries } = await ask("api/runs");
  const benchmark = entries.find((entry) => entry.id === pageData.live.benchmark && entry.kind === "benchmark");
  const count = (benchmark?.counts?.finished ?? 0) - report.benchmark.runs.done;
  $("news").hidden = count <= 0;
  $("news").textContent = `${countOf(count, "more run")} done: show the new results`;
  return benchmark?.state === "running";
}

async function startLive() {
  $("home").hidden = false;
  $("export").hidden = false;
  $("export").href = `export?${liveQuery()}`;
  $("footer").textContent = "Live page of the Motet dashboard. It loads nothing from other hosts.";
  $("news").addEventListener("click", () => {
    $("news").hidden = true;
    loadReport();
  });
  let isLoaded = false;
  keepLooking(async () => {
    if (!isLoaded) await loadReport();
    isLoaded = true;
    return lookForUpdates();
  });
}

initPage();
if (pageData.live) startLive();
else setReport(pageData);
