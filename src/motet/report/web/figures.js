// Figures. Each has a caption that describes it in words, and its numbers as a table, also for screen readers.

function plotLayout(changes) {
  const border = cssValue("--border");
  const axis = { gridcolor: border, zerolinecolor: border, linecolor: border, automargin: true };
  const { xaxis = {}, yaxis = {}, ...rest } = changes;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: cssValue("--text"), family: cssValue("--font"), size: 13 },
    margin: { l: 56, r: 14, t: 30, b: 44 },
    hovermode: "closest",
    showlegend: false,
    hoverlabel: { align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: border, activecolor: cssValue("--muted") },
    dragmode: isNarrow() ? false : "zoom",
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

// `table` is [headings, rows].
function renderFigure(id, { title, caption, traces, layout, table }) {
  const figure = $(id);
  if (!figure.firstChild) {
    figure.append(
      createElement("figcaption", {}, createElement("b", {}, ""), " ", createElement("span", { class: "caption" }, "")),
      createElement("div", { class: "plot", role: "img" }),
      createElement(
        "details", {}, createElement("summary", {}, "Numbers"), createElement("div", { class: "scroll" }),
      ),
    );
  }
  const [figcaption, plot, details] = figure.children;
  figcaption.firstChild.textContent = `${title}.`;
  figcaption.lastChild.textContent = caption;
  plot.setAttribute("aria-label", `${title}. ${caption}`);
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg", filename: id },
  };
  Plotly.react(plot, traces, plotLayout(layout), config);
  details.lastChild.replaceChildren(sortableTable(...table));
}

function colorScale() {
  return isDark()
    ? [[0, "#19212a"], [0.5, "#3b67ad"], [1, "#b9d4ff"]]
    : [[0, "#f6f8fb"], [0.5, "#7fa4de"], [1, "#173b7a"]];
}

function groupByMethod(runs) {
  const groups = new Map();
  for (const run of runs) groups.set(run.method, [...(groups.get(run.method) || []), run]);
  return groups;
}

// Exponential smoothing
function smooth(values, weight) {
  const smoothed = [];
  for (const v of values) smoothed.push(smoothed.length ? weight * smoothed.at(-1) + (1 - weight) * v : v);
  return smoothed;
}

// Learning curves. The points of a curve are [round, value, seconds, bytes].

function drawCurves() {
  const metric = $("metric").value;
  const runs = visibleRuns().filter((run) => run.curves[metric]?.length);
  const sending = runs.filter((run) => run.curves[metric].at(-1)[3] > 0);
  drawCurve("by-round", runs, metric, { column: 0, xlabel: "round", unit: 1 });
  drawCurve("by-bytes", sending, metric, { column: 3, xlabel: "megabytes, up and down", unit: 1e-6 });
  drawCurve("by-seconds", runs, metric, { column: 2, xlabel: "seconds", unit: 1 });
}

function drawCurve(id, runs, metric, { column, xlabel, unit }) {
  const isLogX = $("log-x").checked;
  const groups = [...groupByMethod(runs)];
  const ends = groups
    .filter(([method]) => !isBound(method))
    .flatMap(([, group]) => group.map((run) => run.curves[metric].at(-1)[column] * unit));
  const xmax = Math.max(0, ...ends);
  const traces = [], rows = [], annotations = [];
  for (const [method, group] of groups) {
    if (isBound(method) && xmax) {
      const value = mean(group.map((run) => run.curves[metric].at(-1)[1]));
      rows.push([method, null, value]);
      traces.push(boundTrace(method, value, xmax));
      annotations.push(boundAnnotation(method, value));
    } else {
      const curves = group.map((run) => run.curves[metric].map((point) => [point[column] * unit, point[1]]));
      rows.push([method, mean(curves.map((c) => c.at(-1)[0])), mean(curves.map((c) => c.at(-1)[1]))]);
      traces.push(...methodTraces(method, curves));
    }
  }
  const roundTicks = column === 0 && !isLogX ? { rangemode: "tozero", ...(xmax <= 12 ? { dtick: 1 } : {}) } : {};
  renderFigure(id, {
    title: `${metric} by ${xlabel.split(",")[0]}`,
    caption: curveCaption(metric, rows),
    traces,
    layout: {
      xaxis: { title: { text: xlabel }, type: isLogX ? "log" : "linear", ...roundTicks },
      yaxis: { title: { text: metric }, type: $("log-y").checked ? "log" : "linear" },
      annotations,
    },
    table: [["run", xlabel, `final ${metric}`], rows],
  });
}

function curveCaption(metric, rows) {
  if (!rows.length) return "No run is selected.";
  const highest = rows.reduce((a, b) => (b[2] > a[2] ? b : a));
  const lowest = formatNumber(Math.min(...rows.map((row) => row[2])));
  const range = rows.length > 1 ? `between ${lowest} and ` : "";
  return `The final ${metric} is ${range}${formatNumber(highest[2])} (${highest[0]}).`;
}

// A bound is a horizontal line: its rounds are epochs over all data, or purely local, unlike federated rounds.
function boundTrace(method, value, xmax) {
  const dash = method.toLowerCase().includes("isolated") ? "dot" : "dash";
  return {
    x: [$("log-x").checked ? xmax / 100 : 0, xmax],
    y: [value, value],
    mode: "lines",
    name: method,
    line: { color: cssValue("--muted"), width: 1.6, dash },
    hovertemplate: `<b>${method}</b>: %{y:.4~g}<extra></extra>`,
  };
}

function boundAnnotation(method, value) {
  return {
    x: 1,
    xref: "paper",
    xanchor: "right",
    y: $("log-y").checked ? Math.log10(value) : value,
    yanchor: "bottom",
    text: method,
    showarrow: false,
    font: { size: 11, color: cssValue("--muted") },
  };
}

// One line per seed, or their mean with a band of one standard deviation. `curves` has a list of [x, y] per seed.
function methodTraces(method, curves) {
  const weight = Number($("smoothing").value);
  const color = methodColor(method);
  const line = { color, width: 2.2, dash: isBound(method) ? "dash" : "solid" };
  const trace = (x, y, more = {}) => ({
    x,
    y,
    mode: x.length === 1 ? "markers" : curves[0].length < 25 ? "lines+markers" : "lines",
    name: method,
    line,
    marker: { size: x.length === 1 ? 10 : 5, color },
    hovertemplate: `<b>${method}</b><br>%{x:.4~g}: %{y:.4~g}<extra></extra>`,
    legendgroup: method,
    ...more,
  });
  const haveSameLength = curves.every((curve) => curve.length === curves[0].length);
  if (curves.length === 1 || $("seeds").checked || !haveSameLength) {
    const width = curves.length > 1 ? 1.4 : 2.2;
    return curves.map((curve, i) =>
      trace(curve.map((p) => p[0]), smooth(curve.map((p) => p[1]), weight), { showlegend: i === 0, line: { ...line, width } }),
    );
  }
  const x = curves[0].map((_, i) => mean(curves.map((curve) => curve[i][0])));
  const y = smooth(x.map((_, i) => mean(curves.map((curve) => curve[i][1]))), weight);
  const deviation = x.map((_, i) => std(curves.map((curve) => curve[i][1])));
  const band = {
    x: [...x, ...[...x].reverse()],
    y: [...y.map((v, i) => v + deviation[i]), ...y.map((v, i) => v - deviation[i]).reverse()],
    fill: "toself",
    fillcolor: color,
    opacity: 0.14,
    line: { width: 0 },
    mode: "lines",
    hoverinfo: "skip",
    showlegend: false,
    legendgroup: method,
  };
  return [band, trace(x, y)];
}

// Fairness: the score of every client

function drawFairness() {
  const runs = visibleRuns().filter((run) => Object.keys(run.client_scores).length);
  $("clients").hidden = !runs.length;
  if (!runs.length) return;
  const traces = [], rows = [];
  for (const [method, group] of groupByMethod(runs)) {
    const scores = group.flatMap((run) => Object.entries(run.client_scores));
    const sorted = scores.map(([, score]) => score).sort((a, b) => a - b);
    const worst = mean(sorted.slice(0, Math.max(1, Math.ceil(sorted.length / 10))));
    traces.push(fairnessBox(method, scores), worstMark(method, worst));
    rows.push([method, scores.length, mean(sorted), std(sorted), worst, sorted[0]]);
  }
  const metric = runs[0].primary_metric;
  const fairest = rows.reduce((a, b) => (b[4] > a[4] ? b : a));
  renderFigure("fairness", {
    title: `${metric} of each client`,
    caption:
      "One point per client: its model on its own test set. The red bar is the mean of the worst 10 % of clients; " +
      `${fairest[0]} has the highest (${formatNumber(fairest[4])}).`,
    traces,
    layout: { yaxis: { title: { text: metric } }, xaxis: { type: "category" } },
    table: [["run", "clients", "mean", "std", "worst 10 %", "worst"], rows],
  });
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
    hovertemplate: `worst 10 % of ${method}: %{y:.3f}<extra></extra>`,
    name: "worst 10 %",
  };
}

// Data partitions

const partitionRuns = new Map(); // one run for each different partition

function initPartitions() {
  for (const run of report.runs) {
    const key = JSON.stringify(run.partition && [run.partition.counts ?? null, run.partition.train]);
    if (run.partition && !partitionRuns.has(key)) partitionRuns.set(key, run);
  }
  $("partition").hidden = !partitionRuns.size;
  const name = (run) => [run.setting || run.summary.dataset, `seed ${run.seed}`].filter(Boolean).join(" · ");
  fillSelect($("partition-select"), [...partitionRuns.values()].map((run, i) => [String(i), name(run)]), "0");
  $("partition-select").addEventListener("input", drawPartition);
}

function drawPartition() {
  const run = [...partitionRuns.values()][Number($("partition-select").value)];
  if (!run) return;
  const { clients, train, test, labels, counts, by, left_out: omitted } = run.partition;
  const number = omitted ? `${clients.length} of ${clients.length + omitted}` : `${clients.length}`;
  const [smallest, largest] = [Math.min(...train), Math.max(...train)];
  const range = smallest === largest ? `${smallest}` : `${smallest} to ${largest}`;
  const sizes = `${number} clients with ${range} training examples each`;
  const color = methodColor(methods.find((m) => !isBound(m)) ?? methods[0]);
  if (!counts) {
    renderFigure("heatmap", {
      title: "Training examples per client",
      caption: `${sizes}.`,
      traces: [{ type: "bar", x: clients, y: train, marker: { color } }],
      layout: { yaxis: { title: { text: "examples" } } },
      table: [["client", "train", "test"], clients.map((c, i) => [c, train[i], test[i]])],
    });
    return;
  }
  const shares = counts.map((row, i) => row.map((n) => (train[i] ? n / train[i] : 0)));
  const topShare = Math.round(100 * mean(shares.map((row) => Math.max(...row))));
  const heatmap = partitionHeatmap(shares, run.partition);
  const bars = {
    type: "bar",
    x: train,
    y: clients,
    orientation: "h",
    xaxis: "x2",
    marker: { color, opacity: 0.7 },
    hovertemplate: "%{y}: %{x} examples<extra></extra>",
  };
  renderFigure("heatmap", {
    title: `${by} distribution of the training data`,
    caption: `${sizes}. On average, the most frequent ${by} makes up ${topShare} % of a client's texts.`,
    traces: isNarrow() ? [heatmap] : [heatmap, bars],
    layout: {
      xaxis: { domain: [0, isNarrow() ? 1 : 0.8], type: "category", title: { text: by } },
      xaxis2: { domain: [0.86, 1], title: { text: "examples" }, gridcolor: cssValue("--border"), nticks: 3 },
      yaxis: { autorange: "reversed", type: "category", showticklabels: clients.length <= 40 },
    },
    table: [["client", "examples", ...labels], clients.map((c, i) => [c, train[i], ...counts[i]])],
  });
}

function partitionHeatmap(shares, { labels, clients, counts }) {
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
  $("relations-select").addEventListener("input", drawRelations);
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
      colorbar: { thickness: 12 },
    }],
    layout: { yaxis: { autorange: "reversed", type: "category" }, xaxis: { type: "category" } },
    table: [["client", ...clients], clients.map((c, i) => [c, ...z[i]])],
  });
}

// Client weights, from notes of the form {client: number}

const weightNotes = []; // {name, rounds, note}

function initWeights() {
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
  $("weights-select").addEventListener("input", drawWeights);
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
    hovertemplate: `<b>${client}</b>, round %{x}: %{y:.3f}<extra></extra>`,
  }));
  const last = clients.map((client) => rounds[numbers.at(-1)][client] ?? 0);
  const range = `between ${formatNumber(Math.min(...last))} and ${formatNumber(Math.max(...last))}`;
  renderFigure("weights-by-round", {
    title: name,
    caption: `In the last round, the values of the clients lie ${range}.`,
    traces,
    layout: {
      showlegend: true,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
      xaxis: { title: { text: "round" } },
      yaxis: { title: { text: note }, rangemode: "tozero" },
    },
    table: [["round", ...clients], numbers.map((n) => [n, ...clients.map((c) => rounds[n][c])])],
  });
}
