// Figures of clients: their scores, their data, and what an algorithm notes on them.

const MAX_NAMED_CLIENTS = 30; // of a figure with one row for each client; more are drawn as a box

function drawFairness() {
  const runs = visibleRuns();
  const means = [...groupByMethod(runs)].map(([method, group]) => [method, clientMeans(group)]);
  const groups = means.filter(([, scores]) => scores.size);
  $("clients").hidden = !groups.length;
  if (!groups.length) return;
  const rows = groups.map(([method, scores]) => {
    const sorted = [...scores.values()].sort((a, b) => a - b);
    const worst = mean(sorted.slice(0, Math.max(1, Math.ceil(sorted.length / 10))));
    return [method, sorted.length, mean(sorted), std(sorted), worst, sorted[0]];
  });
  const clients = [...new Set(groups.flatMap(([, scores]) => [...scores.keys()]))].sort(compareValues);
  const metric = runs[0].primary_metric;
  const draw = clients.length <= MAX_NAMED_CLIENTS ? clientDots : clientBoxes;
  renderFigure("fairness", {
    title: `${metric} of each client`,
    table: [["run", "clients", "mean", "std", "worst 10 %", "worst"], rows],
    ...draw(groups, clients, metric, rows),
  });
}

// The score of each client, as the mean over seeds
function clientMeans(runs) {
  const scores = new Map();
  for (const run of runs) for (const [client, score] of Object.entries(run.client_scores)) {
    if (score !== null) scores.set(client, [...(scores.get(client) ?? []), score]);
  }
  return new Map([...scores].map(([client, values]) => [client, mean(values)]));
}

function dotSymbol(method) {
  if (!isBound(method)) return "circle";
  return method.toLowerCase().includes("isolated") ? "diamond-open" : "square-open";
}

// Few clients: one row for each, with its name, and one dot for each run
function clientDots(groups, clients, metric, rows) {
  const traces = groups.map(([method, scores]) => ({
    x: clients.map((client) => scores.get(client) ?? null),
    y: clients,
    mode: "markers",
    name: shorten(method, 30),
    marker: { size: 10, color: methodColor(method), symbol: dotSymbol(method), opacity: 0.85 },
    cliponaxis: false, // a dot at the edge, such as a score of 1, is drawn whole
    hovertemplate: `<b>${escapeLabel(method)}</b><br>%{y}: %{x:.3f}<extra></extra>`,
  }));
  const lowest = rows.reduce((a, b) => (b[5] < a[5] ? b : a));
  const client = [...groups.find(([method]) => method === lowest[0])[1]].reduce((a, b) => (b[1] < a[1] ? b : a))[0];
  return {
    caption:
      "One row for each client: its model on its own test set. " +
      `The lowest score has ${client} with ${lowest[0]} (${formatNumber(lowest[5])}).`,
    traces,
    height: rowsHeight(clients.length),
    layout: {
      xaxis: { title: { text: metric }, range: valueRange(traces.flatMap((trace) => trace.x)) },
      yaxis: nameAxis(clients, { autorange: "reversed" }),
      showlegend: groups.length > 1,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    },
  };
}

// Many clients: a box for each run
function clientBoxes(groups, clients, metric, rows) {
  const traces = groups.flatMap(([method, scores], i) => [fairnessBox(method, [...scores]), worstMark(method, rows[i][4])]);
  const fairest = rows.reduce((a, b) => (b[4] > a[4] ? b : a));
  return {
    caption:
      "One point for each client: its model on its own test set. The red bar is the mean of the worst 10 % of clients" +
      (rows.length > 1 ? `; ${fairest[0]} has the highest (${formatNumber(fairest[4])}).` : `: ${formatNumber(fairest[4])}.`),
    traces,
    layout: {
      yaxis: { title: { text: metric }, range: valueRange(groups.flatMap(([, scores]) => [...scores.values()])) },
      xaxis: nameAxis(groups.map(([method]) => method)),
    },
  };
}

function fairnessBox(method, scores) {
  const color = methodColor(method);
  return {
    type: "box",
    name: method,
    y: scores.map(([, score]) => score),
    text: scores.map(([client]) => client),
    boxpoints: "all",
    jitter: 0.6,
    pointpos: 0,
    marker: { size: 4, color, opacity: 0.55 },
    line: { width: 1.4, color },
    fillcolor: "rgba(0,0,0,0)",
    hovertemplate: "%{text}: %{y:.3f}<extra></extra>",
  };
}

function worstMark(method, worst) {
  const color = cssValue("--bad");
  return {
    x: [method],
    y: [worst],
    mode: "markers",
    marker: { symbol: "line-ew", size: 34, color, line: { width: 3, color } },
    hovertemplate: `worst 10 % of ${escapeLabel(method)}: %{y:.3f}<extra></extra>`,
    name: "worst 10 %",
  };
}

// Data partitions

const partitionRuns = new Map(); // one run for each different partition

function initPartitions() {
  partitionRuns.clear();
  for (const run of report.runs) {
    const key = JSON.stringify(run.partition && [run.partition.counts ?? null, run.partition.train]);
    if (run.partition && !partitionRuns.has(key)) partitionRuns.set(key, run);
  }
  $("partition").hidden = !partitionRuns.size;
  const name = (run) => [run.setting || run.summary.dataset, `seed ${run.seed}`].filter(Boolean).join(" · ");
  fillSelect($("partition-select"), [...partitionRuns.values()].map((run, i) => [String(i), name(run)]), "0");
  $("partition-select").closest("form").hidden = partitionRuns.size < 2;
}

function drawPartition() {
  const run = [...partitionRuns.values()][Number($("partition-select").value)];
  if (!run) return;
  const { clients, train, left_out: omitted } = run.partition;
  const number = omitted ? `${clients.length} of ${clients.length + omitted}` : `${clients.length}`;
  const [smallest, largest] = [Math.min(...train), Math.max(...train)];
  const range = smallest === largest ? `${smallest}` : `${smallest} to ${largest}`;
  const sizes = `${number} clients with ${range} training examples each`;
  const color = methodColor(methods.find((m) => !isBound(m)) ?? methods[0]);
  const draw = run.partition.counts ? labelShares : clients.length <= MAX_NAMED_ROWS ? sizeBars : sizeHistogram;
  renderFigure("heatmap", draw(run.partition, sizes, color));
}

function sizeBars({ clients, train, test }, sizes, color) {
  return {
    title: "Training examples of each client",
    caption: `${sizes}.`,
    traces: [{ type: "bar", orientation: "h", y: clients, x: train, marker: { color } }],
    height: rowsHeight(clients.length),
    layout: { xaxis: { title: { text: "examples" } }, yaxis: nameAxis(clients, { autorange: "reversed" }) },
    table: [["client", "train", "test"], clients.map((c, i) => [c, train[i], test[i]])],
  };
}

function sizeHistogram({ clients, train, test }, sizes, color) {
  return {
    title: "Sizes of clients",
    caption: `${sizes}. The bars count clients by their number of examples.`,
    traces: [{ type: "histogram", x: train, marker: { color } }],
    layout: { xaxis: { title: { text: "training examples" } }, yaxis: { title: { text: "clients" } }, bargap: 0.05 },
    table: [["client", "train", "test"], clients.map((c, i) => [c, train[i], test[i]])],
  };
}

function labelShares(partition, sizes, color) {
  const { clients, train, labels, counts, by } = partition;
  const shares = counts.map((row, i) => row.map((n) => (train[i] ? n / train[i] : 0)));
  const topShare = Math.round(100 * mean(shares.map((row) => Math.max(...row))));
  const bars = {
    type: "bar",
    x: train,
    y: clients,
    orientation: "h",
    xaxis: "x2",
    marker: { color, opacity: 0.7 },
    hovertemplate: "%{y}: %{x} examples<extra></extra>",
  };
  const heatmap = shareHeatmap(shares, partition);
  return {
    title: `${by} distribution of the training data`,
    caption: `${sizes}. On average, the most frequent ${by} makes up ${topShare} % of a client's texts.`,
    traces: isNarrow() ? [heatmap] : [heatmap, bars],
    height: rowsHeight(clients.length),
    layout: {
      xaxis: nameAxis(labels, { domain: [0, isNarrow() ? 1 : 0.8], title: { text: by } }),
      xaxis2: { domain: [0.86, 1], title: { text: "examples" }, gridcolor: cssValue("--border"), nticks: 3 },
      yaxis: nameAxis(clients, { autorange: "reversed" }),
    },
    table: [["client", "examples", ...labels], clients.map((c, i) => [c, train[i], ...counts[i]])],
  };
}

function shareHeatmap(shares, { labels, clients, counts }) {
  return {
    type: "heatmap",
    z: shares,
    x: labels,
    y: clients,
    customdata: counts,
    colorscale: colorScale(),
    zmin: 0,
    zmax: 1,
    hovertemplate: "%{y}, %{x}<br>%{customdata} examples, %{z:.0%}<extra></extra>",
    showscale: !isNarrow(),
    colorbar: { title: { text: "share" }, thickness: 12, tickformat: ".0%" },
  };
}

// Client relations, from the notes of an algorithm about its rounds: {client: cluster} or
// {client: [other clients, nearest first]}.

const relations = []; // {name, rounds, isRanking}

function initRelations() {
  relations.length = 0;
  for (const run of report.runs) for (const [note, rounds] of Object.entries(run.notes)) {
    const first = Object.values(rounds)[0];
    if (!first || typeof first !== "object" || Array.isArray(first)) continue;
    const value = Object.values(first)[0];
    const isRanking = Array.isArray(value);
    if (isRanking || Number.isInteger(value)) {
      relations.push({ name: `${runLabel(run)}: ${note}`, rounds: Object.values(rounds), isRanking });
    }
  }
  $("relations").hidden = !relations.length;
  fillSelect($("relations-select"), relations.map(({ name }, i) => [String(i), name]), "0");
}

function drawRelations() {
  const relation = relations[Number($("relations-select").value)];
  if (!relation) return;
  const { name, rounds, isRanking } = relation;
  const clients = [...new Set(rounds.flatMap((round) => Object.keys(round)))].sort();
  const nearness = (round, a, b) => 1 - Math.max(0, round[a].indexOf(b)) / Math.max(1, clients.length - 1);
  const z = clients.map((a) => clients.map((b) => {
    const common = rounds.filter((round) => a in round && b in round);
    if (!common.length) return null;
    return mean(common.map((round) => (isRanking ? nearness(round, a, b) : Number(round[a] === round[b]))));
  }));
  const meaning = isRanking
    ? "1: always the nearest client; 0: always the farthest."
    : "The share of rounds in which two clients were in the same cluster.";
  renderFigure("matrix", {
    title: name,
    caption: `${meaning} Over ${rounds.length} rounds.`,
    traces: [{
      type: "heatmap",
      z,
      x: clients,
      y: clients,
      zmin: 0,
      zmax: 1,
      colorscale: colorScale(),
      hovertemplate: "%{y}, %{x}: %{z:.2f}<extra></extra>",
      showscale: !isNarrow(),
      colorbar: { thickness: 12 },
    }],
    height: rowsHeight(clients.length),
    layout: { yaxis: nameAxis(clients, { autorange: "reversed" }), xaxis: nameAxis(clients) },
    table: [["client", ...clients], clients.map((c, i) => [c, ...z[i]])],
  });
}

// Client weights, from notes of the form {client: number}

const weightNotes = []; // {name, rounds, note}

function initWeights() {
  weightNotes.length = 0;
  for (const run of report.runs) for (const [note, rounds] of Object.entries(run.notes)) {
    const values = Object.values(Object.values(rounds)[0] ?? {});
    const areNumbers = values.length && values.every((v) => typeof v === "number");
    if (areNumbers && !values.every(Number.isInteger)) {
      weightNotes.push({ name: `${runLabel(run)}: ${note}`, rounds, note });
    }
  }
  $("weights").hidden = !weightNotes.length;
  const isUneven = ({ note, rounds }) =>
    note === "weight" && Object.values(rounds).some((round) => new Set(Object.values(round)).size > 1);
  const selected = Math.max(0, weightNotes.findIndex(isUneven));
  fillSelect($("weights-select"), weightNotes.map(({ name }, i) => [String(i), name]), String(selected));
}

function drawWeights() {
  const entry = weightNotes[Number($("weights-select").value)];
  if (!entry) return;
  const { name, rounds, note } = entry;
  const numbers = Object.keys(rounds).map(Number).sort((a, b) => a - b);
  const clients = [...new Set(Object.values(rounds).flatMap((round) => Object.keys(round)))].sort();
  const traces = clients.map((client, i) => ({
    x: numbers,
    y: numbers.map((n) => rounds[n][client] ?? null),
    name: client,
    mode: "lines+markers",
    line: { color: palette()[i % palette().length], width: 2 },
    hovertemplate: `<b>${escapeLabel(client)}</b>, round %{x}: %{y:.3f}<extra></extra>`,
  }));
  const last = clients.map((client) => rounds[numbers.at(-1)][client] ?? 0);
  const range = `between ${formatNumber(Math.min(...last))} and ${formatNumber(Math.max(...last))}`;
  renderFigure("weights-by-round", {
    title: name,
    caption: `In the last round, the values of the clients lie ${range}.`,
    traces,
    layout: {
      showlegend: clients.length <= MAX_NAMED_CLIENTS,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
      xaxis: { title: { text: "round" }, tick0: 0, dtick: wholeStep(numbers.at(-1)) },
      yaxis: { title: { text: note }, rangemode: "tozero" },
    },
    table: [["round", ...clients], numbers.map((n) => [n, ...clients.map((c) => rounds[n][c])])],
  });
}
