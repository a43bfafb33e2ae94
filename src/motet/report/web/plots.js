// How a figure is drawn: layout, axes and colors. Each figure has a caption that describes it in words, and its numbers as
// a table, also for screen readers.

const ROW_PIXELS = 20; // of a heat map or of a list of clients
const MAX_NAMED_ROWS = 40; // more names do not fit

const plotMargin = (right = 14) => ({ l: 56, r: right, t: isNarrow() ? 10 : 30, b: 44 }); // above: the tool bar

// plotly reads a few HTML tags in its texts, such as links. Names of runs, metrics, labels and clients are no HTML.
const escapeLabel = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const escapeNames = (value) =>
  typeof value === "string" ? escapeLabel(value) : Array.isArray(value) ? value.map(escapeNames) : value;

// Templates and annotations have tags of their own; what writes them escapes the names.
function escapeParts(object, names) {
  const parts = names.filter((name) => name in object).map((name) => [name, escapeNames(object[name])]);
  return { ...object, ...Object.fromEntries(parts) };
}

const escapeTrace = (trace) => escapeParts(trace, ["name", "x", "y", "text", "legendgroup"]);

function escapeAxis(axis) {
  const title = axis.title ? { title: { ...axis.title, text: escapeNames(axis.title.text) } } : {};
  return { ...escapeParts(axis, ["tickvals", "ticktext"]), ...title };
}

function plotLayout(changes) {
  const border = cssValue("--border");
  const axis = { gridcolor: border, zerolinecolor: border, linecolor: border, automargin: true };
  const { xaxis = {}, yaxis = {}, xaxis2, ...rest } = changes;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: cssValue("--text"), family: cssValue("--font"), size: 13 },
    margin: plotMargin(),
    hovermode: "closest",
    showlegend: false,
    hoverlabel: { align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: border, activecolor: cssValue("--muted") },
    dragmode: isNarrow() ? false : "zoom",
    xaxis: { ...axis, ...escapeAxis(xaxis) },
    yaxis: { ...axis, ...escapeAxis(yaxis) },
    ...(xaxis2 ? { xaxis2: escapeAxis(xaxis2) } : {}),
    ...rest,
  };
}

// `table` is [headings, rows]; `height` is in pixels. A zoom of the reader stays when new data arrives.
function renderFigure(id, { title, caption, traces, layout, table, height = null }) {
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
  plot.style.height = height ? `${height}px` : "";
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: isNarrow() ? false : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg", filename: id },
  };
  Plotly.react(plot, traces.map(escapeTrace), plotLayout({ uirevision: title, ...layout }), config);
  details.lastChild.replaceChildren(sortableTable(...table));
}

function colorScale() {
  return isDark()
    ? [[0, "#19212a"], [0.5, "#3b67ad"], [1, "#b9d4ff"]]
    : [[0, "#f6f8fb"], [0.5, "#7fa4de"], [1, "#173b7a"]];
}

// A range that holds all values. Almost equal values look almost equal, and no axis of a share ends above 1 or below 0.
function valueRange(values) {
  const finite = values.filter(Number.isFinite);
  if (!finite.length) return [0, 1];
  let [low, high] = [Math.min(...finite), Math.max(...finite)];
  const isShare = low >= 0 && high <= 1;
  const narrowest = isShare ? 0.1 : 0.1 * Math.max(Math.abs(low), Math.abs(high), 1e-9);
  const pad = Math.max(0.06 * (high - low), (narrowest - (high - low)) / 2);
  const [bottom, top] = [low - pad, high + pad];
  if (!isShare) return [low >= 0 ? Math.max(0, bottom) : bottom, top];
  return [Math.max(-0.01, bottom), Math.min(1.01, top)];
}

function logRange(values) {
  const logs = values.filter((v) => v > 0).map(Math.log10);
  if (!logs.length) return [-1, 0];
  const pad = Math.max(0.03, 0.06 * (Math.max(...logs) - Math.min(...logs)));
  return [Math.min(...logs) - pad, Math.max(...logs) + pad];
}

// The distance of ticks at whole numbers, so that there are at most ten: 1, 2, 5, 10, 20, …
function wholeStep(largest) {
  for (let step = 1; ; step *= 10) for (const factor of [1, 2, 5]) if (largest <= 10 * step * factor) return step * factor;
}

const shorten = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// An axis of names. Long names are cut, and if there are too many, none is shown.
function nameAxis(names, more = {}) {
  const isShown = names.length <= MAX_NAMED_ROWS;
  return {
    type: "category",
    showticklabels: isShown,
    ...(isShown ? { tickmode: "array", tickvals: names, ticktext: names.map((n) => shorten(n, isNarrow() ? 14 : 26)) } : {}),
    tickfont: { size: 12 },
    ...more,
  };
}

// The height of a plot with one row for each name
const rowsHeight = (count) => Math.max(220, Math.min(count, 60) * ROW_PIXELS + 110);
