// The figures. Each has a sentence that says what is to be seen, and its numbers as a table for those who cannot see it.

function layout(changes) {
  const axis = { gridcolor: ink("--line"), zerolinecolor: ink("--line"), linecolor: ink("--line"), automargin: true };
  const { xaxis = {}, yaxis = {}, ...rest } = changes;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink("--ink"), family: ink("--text"), size: 13 },
    margin: { l: 56, r: 14, t: 30, b: 44 }, hovermode: "closest", showlegend: false, hoverlabel: { align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: ink("--line"), activecolor: ink("--soft") }, dragmode: narrow() ? false : "zoom",
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
  };
}

function place(id, title, says, traces, arrangement, table) {
  const home = $(id);
  if (!home.firstChild) {
    home.append(element("figcaption", {}, element("b", {}, ""), " ", element("span", { class: "says" }, "")),
      element("div", { class: "plot", role: "img" }),
      element("details", {}, element("summary", {}, "The numbers"), element("div", { class: "scroll" })));
  }
  const [caption, plot, details] = home.children;
  caption.firstChild.textContent = title;
  caption.lastChild.textContent = says;
  plot.setAttribute("aria-label", `${title}: ${says}`);
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { format: "svg", filename: id } };
  Plotly.react(plot, traces, layout(arrangement), config);
  details.lastChild.replaceChildren(table ? sortable(...table) : "");
}

const narrow = () => window.innerWidth < 600;
const smooth = (values, weight) => values.reduce((done, v, i) => [...done, i ? weight * done[i - 1] + (1 - weight) * v : v], []);

function byMethod(runs) {
  const groups = new Map();
  for (const run of runs) groups.set(run.method, [...(groups.get(run.method) || []), run]);
  return groups;
}

function drawCurves() {
  const metric = $("metric").value, runs = shown().filter((r) => r.curves[metric]?.length);
  const axes = [["by-round", 0, "round", 1], ["by-bytes", 3, "megabytes, both ways", 1e-6], ["by-seconds", 2, "seconds", 1]];
  for (const [id, column, x, unit] of axes) {
    const some = id === "by-bytes" ? runs.filter((r) => r.curves[metric].at(-1)[3] > 0) : runs;
    const traces = [], rows = [];
    const groups = [...byMethod(some)], far = Math.max(0, ...groups.filter(([m]) => !isBound(m)).flatMap(([, g]) => g.map((r) => r.curves[metric].at(-1)[column] * unit)));
    const marks = [];
    for (const [method, group] of groups) {
      if (isBound(method) && far) traces.push(level(method, group, metric, far, rows, marks));
      else traces.push(...lines(method, group, metric, column, unit, rows));
    }
    const best = rows.length ? rows.reduce((a, b) => (b[2] > a[2] ? b : a)) : null;
    const least = figure(Math.min(...rows.map((r) => r[2]))), range = rows.length > 1 ? `between ${least} and` : "at";
    const says = best ? `${metric} ends ${range} ${figure(best[2])} (${best[0]}).` : "Nothing is chosen.";
    const whole = column === 0 && !$("log-x").checked ? { rangemode: "tozero", ...(far <= 12 ? { dtick: 1 } : {}) } : {};
    place(id, `${metric} by ${x.split(",")[0]}`, says, traces, {
      xaxis: { title: { text: x }, type: $("log-x").checked ? "log" : "linear", ...whole },
      yaxis: { title: { text: metric }, type: $("log-y").checked ? "log" : "linear" }, annotations: marks,
    }, [["run", x, `${metric} at the end`], rows]);
  }
}

// A bound is a level: its rounds are passes over all data, or nobody's, and mean nothing beside federated rounds.
function level(method, runs, metric, far, rows, marks) {
  const value = mean(runs.map((r) => r.curves[metric].at(-1)[1]));
  rows.push([method, null, value]);
  marks.push({ x: 1, xref: "paper", xanchor: "right", y: $("log-y").checked ? Math.log10(value) : value, yanchor: "bottom", text: method, showarrow: false, font: { size: 11, color: ink("--soft") } });
  return { x: [$("log-x").checked ? far / 100 : 0, far], y: [value, value], mode: "lines", name: method, line: { color: ink("--soft"), width: 1.6, dash: method.toLowerCase().includes("isolated") ? "dot" : "dash" }, hovertemplate: `<b>${method}</b>: %{y:.4~g}<extra></extra>` };
}

// One method: a line a seed, or their mean with a band of one deviation.
function lines(method, runs, metric, column, unit, rows) {
  const weight = Number($("smoothing").value), ink_ = colour(method);
  const points = runs.map((r) => r.curves[metric].map((p) => [p[column] * unit, p[1]]));
  const line = { color: ink_, width: 2.2, dash: isBound(method) ? "dash" : "solid" };
  const mode = points[0].length < 25 ? "lines+markers" : "lines";
  const hover = `<b>${method}</b><br>%{x:.4~g}: %{y:.4~g}<extra></extra>`;
  const trace = (x, y, more = {}) => ({ x, y, mode: x.length === 1 ? "markers" : mode, name: method, line, marker: { size: x.length === 1 ? 10 : 5, color: ink_ }, hovertemplate: hover, legendgroup: method, ...more });
  rows.push([method, mean(points.map((p) => p.at(-1)[0])), mean(points.map((p) => p.at(-1)[1]))]);
  const even = points.every((p) => p.length === points[0].length);
  if (points.length === 1 || $("seeds").checked || !even) {
    return points.map((p, i) => trace(p.map((q) => q[0]), smooth(p.map((q) => q[1]), weight), { showlegend: i === 0, line: { ...line, width: points.length > 1 ? 1.4 : 2.2 } }));
  }
  const x = points[0].map((_, i) => mean(points.map((p) => p[i][0])));
  const y = smooth(x.map((_, i) => mean(points.map((p) => p[i][1]))), weight);
  const d = x.map((_, i) => deviation(points.map((p) => p[i][1])));
  const band = { x: [...x, ...[...x].reverse()], y: [...y.map((v, i) => v + d[i]), ...y.map((v, i) => v - d[i]).reverse()], fill: "toself", fillcolor: ink_, opacity: 0.14, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: method };
  return [band, trace(x, y)];
}

function drawFairness() {
  const runs = shown().filter((r) => Object.keys(r.own).length);
  $("clients").hidden = !runs.length;
  if (!runs.length) return;
  const traces = [], rows = [];
  for (const [method, group] of byMethod(runs)) {
    const own = group.flatMap((r) => Object.entries(r.own).map(([client, value]) => [client, value]));
    const ordered = own.map((o) => o[1]).sort((a, b) => a - b);
    const worst = mean(ordered.slice(0, Math.max(1, Math.ceil(ordered.length / 10))));
    traces.push({ type: "box", name: method, y: own.map((o) => o[1]), text: own.map((o) => o[0]), boxpoints: "all", jitter: 0.6, pointpos: 0, marker: { size: 4, color: colour(method), opacity: 0.55 }, line: { width: 1.4, color: colour(method) }, fillcolor: "rgba(0,0,0,0)", hovertemplate: "%{text}: %{y:.3f}<extra></extra>" });
    traces.push({ x: [method], y: [worst], mode: "markers", marker: { symbol: "line-ew", size: 34, color: ink("--bad"), line: { width: 3, color: ink("--bad") } }, hovertemplate: `worst tenth of ${method}: %{y:.3f}<extra></extra>`, name: "worst tenth" });
    rows.push([method, own.length, mean(ordered), deviation(ordered), worst, ordered[0]]);
  }
  const headline = runs[0].headline, fairest = rows.reduce((a, b) => (b[4] > a[4] ? b : a));
  place("fairness", `Each client's own ${headline}`, `A point a client, its own model on its own test set; the red bar is the mean of the worst tenth, highest for ${fairest[0]} (${figure(fairest[4])}).`,
    traces, { yaxis: { title: { text: headline } }, xaxis: { type: "category" } }, [["run", "clients", "mean", "deviation", "worst tenth", "worst"], rows]);
}

const divisions = new Map();
function divisionPart() {
  for (const run of told.runs) {
    const key = JSON.stringify(run.partition && [run.partition.counts ?? null, run.partition.train]);
    if (run.partition && !divisions.has(key)) divisions.set(key, run);
  }
  $("division").hidden = !divisions.size;
  options($("which-division"), [...divisions.values()].map((r, i) => [String(i), [r.setting || r.summary.dataset, `seed ${r.seed}`].filter(Boolean).join(" · ")]), "0");
  $("which-division").addEventListener("input", drawDivision);
}

function drawDivision() {
  const run = [...divisions.values()][Number($("which-division").value)];
  if (!run) return;
  const { clients, train, test, labels, counts, by, left_out: left } = run.partition;
  const sizes = `${clients.length}${left ? ` of ${clients.length + left}` : ""} clients with ${Math.min(...train)} to ${Math.max(...train)} training examples`;
  if (!counts) {
    place("heatmap", "Training examples a client", `${sizes}.`, [{ type: "bar", x: clients, y: train, marker: { color: colour(methods[0]) } }], { yaxis: { title: { text: "examples" } } }, [["client", "train", "test"], clients.map((c, i) => [c, train[i], test[i]])]);
    return;
  }
  const share = counts.map((row, i) => row.map((n) => (train[i] ? n / train[i] : 0)));
  const top = mean(share.map((row) => Math.max(...row)));
  const scale = dark() ? [[0, "#19212a"], [0.5, "#3b67ad"], [1, "#b9d4ff"]] : [[0, "#f6f8fb"], [0.5, "#7fa4de"], [1, "#173b7a"]];
  const grid = { z: share, x: labels, y: clients, customdata: counts, type: "heatmap", colorscale: scale, zmin: 0, zmax: 1, hovertemplate: "%{y}, %{x}<br>%{customdata} examples, %{z:.0%}<extra></extra>", showscale: !narrow(), colorbar: { title: { text: "share" }, thickness: 12, tickformat: ".0%" } };
  const bars = { type: "bar", x: train, y: clients, orientation: "h", xaxis: "x2", marker: { color: colour(methods.find((m) => !isBound(m)) ?? methods[0]), opacity: 0.7 }, hovertemplate: "%{y}: %{x} examples<extra></extra>" };
  place("heatmap", `Which ${by} each client trains on`, `${sizes}; a client's commonest ${by} makes up ${Math.round(100 * top)} % of its texts on average.`, narrow() ? [grid] : [grid, bars], {
    xaxis: { domain: [0, narrow() ? 1 : 0.8], type: "category", title: { text: by } }, xaxis2: { domain: [0.86, 1], title: { text: "examples" }, gridcolor: ink("--line"), nticks: 3 },
    yaxis: { autorange: "reversed", type: "category", showticklabels: clients.length <= 40 },
  }, [["client", "examples", ...labels], clients.map((c, i) => [c, train[i], ...counts[i]])]);
}

// Notes an algorithm keeps of its rounds: {client: cluster} and {client: [others, nearest first]} become matrices of how often.
const kin = [];
function kinPart() {
  for (const run of told.runs) for (const [name, rounds] of Object.entries(run.notes)) {
    const first = Object.values(rounds)[0];
    if (!first || typeof first !== "object" || Array.isArray(first)) continue;
    const value = Object.values(first)[0];
    if (Array.isArray(value) || Number.isInteger(value)) kin.push([`${label(run)}: ${name}`, Object.values(rounds), Array.isArray(value)]);
  }
  $("kin").hidden = !kin.length;
  options($("which-kin"), kin.map(([name], i) => [String(i), name]), "0");
  $("which-kin").addEventListener("input", drawKin);
}

function drawKin() {
  const entry = kin[Number($("which-kin").value)];
  if (!entry) return;
  const [name, rounds, ranked] = entry;
  const clients = [...new Set(rounds.flatMap((r) => Object.keys(r)))].sort();
  const z = clients.map((a) => clients.map((b) => {
    const seen = rounds.filter((r) => a in r && b in r);
    if (!seen.length) return null;
    return ranked ? mean(seen.map((r) => 1 - Math.max(0, r[a].indexOf(b)) / Math.max(1, clients.length - 1))) : mean(seen.map((r) => Number(r[a] === r[b])));
  }));
  const says = ranked ? "1: always the nearest; 0: always the farthest." : "The share of rounds in which two clients were in one cluster.";
  const scale = dark() ? [[0, "#19212a"], [0.5, "#3b67ad"], [1, "#b9d4ff"]] : [[0, "#f6f8fb"], [0.5, "#7fa4de"], [1, "#173b7a"]];
  place("matrix", name, `${says} Over ${rounds.length} rounds.`, [{ type: "heatmap", z, x: clients, y: clients, zmin: 0, zmax: 1, colorscale: scale, hovertemplate: "%{y}, %{x}: %{z:.2f}<extra></extra>", colorbar: { thickness: 12 } }],
    { yaxis: { autorange: "reversed", type: "category" }, xaxis: { type: "category" } }, [["client", ...clients], clients.map((c, i) => [c, ...z[i]])]);
}

const weighed = [];
function weightsPart() {
  for (const run of told.runs) for (const [name, rounds] of Object.entries(run.notes)) {
    const values = Object.values(Object.values(rounds)[0] ?? {});
    if (values.length && values.every((v) => typeof v === "number") && !values.every(Number.isInteger)) weighed.push([`${label(run)}: ${name}`, rounds, name]);
  }
  $("weights").hidden = !weighed.length;
  const uneven = weighed.findIndex(([, rounds, what]) => what === "weight" && Object.values(rounds).some((r) => new Set(Object.values(r)).size > 1));
  options($("which-weights"), weighed.map(([name], i) => [String(i), name]), String(Math.max(0, uneven)));
  $("which-weights").addEventListener("input", drawWeights);
}

function drawWeights() {
  const entry = weighed[Number($("which-weights").value)];
  if (!entry) return;
  const [name, rounds, what] = entry;
  const numbers = Object.keys(rounds).map(Number).sort((a, b) => a - b);
  const clients = [...new Set(Object.values(rounds).flatMap((r) => Object.keys(r)))].sort();
  const palette = dark() ? DARK : LIGHT;
  const traces = clients.map((c, i) => ({ x: numbers, y: numbers.map((n) => rounds[n][c] ?? null), name: c, mode: "lines+markers", line: { color: palette[i % palette.length], width: 2 }, hovertemplate: `<b>${c}</b>, round %{x}: %{y:.3f}<extra></extra>` }));
  const last = clients.map((c) => rounds[numbers.at(-1)][c] ?? 0);
  place("weights-by-round", name, `At the end the clients' lie between ${figure(Math.min(...last))} and ${figure(Math.max(...last))}.`, traces,
    { showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom" }, xaxis: { title: { text: "round" } }, yaxis: { title: { text: what }, rangemode: "tozero" } }, [["round", ...clients], numbers.map((n) => [n, ...clients.map((c) => rounds[n][c])])]);
}
