// Learning curves: a metric over rounds, bytes and seconds. The points of a curve are [round, value, seconds, bytes].

const LABEL_PIXELS = 15; // between two labels of bounds
const MAX_LABELS = 8;

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

function drawCurves() {
  const metric = $("metric").value;
  const runs = visibleRuns().filter((run) => run.curves[metric]?.length);
  const sending = runs.filter((run) => run.curves[metric].at(-1)[3] > 0);
  drawCurve("by-round", runs, metric, { column: 0, xlabel: "round", unit: 1 });
  drawCurve("by-bytes", sending, metric, { column: 3, ...byteUnit(sending, metric) });
  drawCurve("by-seconds", runs, metric, { column: 2, ...timeUnit(runs, metric) });
}

const lastValue = (runs, metric, column) => Math.max(0, ...runs.map((run) => run.curves[metric].at(-1)[column]));

// Some methods send a thousand times as much as others. On a linear axis, the others would be a vertical line.
function areFarApart(runs, metric) {
  const bytes = runs.map((run) => run.curves[metric].at(-1)[3]);
  return Math.max(...bytes) > 50 * Math.min(...bytes);
}

function byteUnit(runs, metric) {
  const bytes = lastValue(runs, metric, 3);
  const [name, size] = bytes >= 5e9 ? ["gigabytes", 1e9] : bytes >= 5e5 ? ["megabytes", 1e6] : ["kilobytes", 1e3];
  return { xlabel: `${name}, up and down`, unit: 1 / size };
}

function timeUnit(runs, metric) {
  const seconds = lastValue(runs, metric, 2);
  const [name, size] = seconds >= 10800 ? ["hours", 3600] : seconds >= 300 ? ["minutes", 60] : ["seconds", 1];
  return { xlabel: name, unit: 1 / size };
}

function drawCurve(id, runs, metric, { column, xlabel, unit }) {
  $(id).hidden = !runs.length && id !== "by-round";
  const isLogX = $("log-x").checked || (column === 3 && areFarApart(runs, metric)), isLogY = $("log-y").checked;
  const groups = [...groupByMethod(runs)];
  const ends = groups
    .filter(([method]) => !isBound(method))
    .flatMap(([, group]) => group.map((run) => run.curves[metric].at(-1)[column] * unit));
  const xmax = Math.max(0, ...ends);
  const traces = [], rows = [], levels = [];
  for (const [method, group] of groups) {
    if (isBound(method) && xmax) {
      const value = mean(group.map((run) => run.curves[metric].at(-1)[1]));
      rows.push([method, null, value]);
      levels.push({ method, value });
    } else {
      const curves = group.map((run) => run.curves[metric].map((point) => [point[column] * unit, point[1]]));
      rows.push([method, mean(curves.map((c) => c.at(-1)[0])), mean(curves.map((c) => c.at(-1)[1]))]);
      traces.push(...methodTraces(method, curves));
    }
  }
  const values = [...traces.flatMap((trace) => trace.y), ...levels.map(({ value }) => value)];
  const range = isLogY ? logRange(values) : valueRange(values);
  const roundTicks = column === 0 && !isLogX ? { tick0: 0, dtick: wholeStep(xmax) } : {};
  const start = isLogX ? {} : { rangemode: "tozero" };
  const labels = levelLabels(levels, range, isLogY, $(id).querySelector(".plot")?.clientHeight || 300);
  renderFigure(id, {
    title: `${metric} by ${xlabel.split(",")[0]}`,
    caption: curveCaption(metric, rows),
    traces: [...traces, ...levels.map(({ method, value }) => levelTrace(method, value, xmax, isLogX))],
    layout: {
      xaxis: { title: { text: xlabel }, type: isLogX ? "log" : "linear", ...start, ...roundTicks },
      yaxis: { title: { text: metric }, type: isLogY ? "log" : "linear", range },
      annotations: labels,
      margin: plotMargin(labelMargin(labels)),
      uirevision: `${metric} ${xlabel} ${isLogX} ${isLogY}`,
    },
    table: [["run", xlabel, `final ${metric}`], rows],
  });
}

function curveCaption(metric, rows) {
  if (!rows.length) return report.runs.some(isActive) ? "There is no evaluation yet." : "No run is selected.";
  const highest = rows.reduce((a, b) => (b[2] > a[2] ? b : a));
  const lowest = formatNumber(Math.min(...rows.map((row) => row[2])));
  const range = lowest === formatNumber(highest[2]) ? "" : `between ${lowest} and `;
  return `The last ${metric} is ${range}${formatNumber(highest[2])} (${highest[0]}).`;
}

// A bound is a level, not a curve: its rounds are epochs over all data, or purely local, unlike federated rounds.
function levelTrace(method, value, xmax, isLogX) {
  const dash = method.toLowerCase().includes("isolated") ? "dot" : "dash";
  return {
    x: [isLogX ? xmax / 100 : 0, xmax],
    y: [value, value],
    mode: "lines",
    name: method,
    line: { color: cssValue("--muted"), width: 1.6, dash },
    hovertemplate: `<b>${escapeLabel(method)}</b>: %{y:.4~g}<extra></extra>`,
  };
}

// The names of bounds stand to the right of the plot, moved apart where their levels are close. A phone has no room.
function levelLabels(levels, range, isLogY, pixels) {
  if (isNarrow() || levels.length > MAX_LABELS) return [];
  const scale = (pixels - 74) / (range[1] - range[0]);
  const sorted = levels.map((level) => ({ ...level, y: isLogY ? Math.log10(level.value) : level.value }));
  sorted.sort((a, b) => a.y - b.y);
  let lowest = -Infinity;
  return sorted.map(({ method, y }) => {
    const pixel = (y - range[0]) * scale;
    const position = Math.max(pixel, lowest + LABEL_PIXELS);
    lowest = position;
    return {
      x: 1, xref: "paper", xanchor: "left", xshift: 5, y, yanchor: "middle", yshift: position - pixel,
      text: escapeLabel(shorten(method, 22)), showarrow: false, font: { size: 12, color: cssValue("--muted") },
    };
  });
}

const labelMargin = (labels) => 14 + 7 * Math.max(0, ...labels.map(({ text }) => text.length));

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
    hovertemplate: `<b>${escapeLabel(method)}</b><br>%{x:.4~g}: %{y:.4~g}<extra></extra>`,
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
