// What each chart draws, and how.
const BOUND = -1; // stands for the lower bound where algorithms are listed

const CHARTS = {
  speedup: {
    log: true,
    unit: ratioText,
    of(view, row) {
      const base = view.at(data.baseline, row.nbytes);
      if (!base) return null;
      if (row === base) return { value: 1 };
      return { value: base.time / row.time, low: base.low / row.high, high: base.high / row.low };
    },
    bound: () => null,
    ticks: ratioTicks,
  },
  time: {
    log: true,
    unit: timeText,
    of: (view, row) => ({ value: row.time, low: row.low, high: row.high }),
    bound: (view, nbytes) => view.bound(nbytes),
    ticks: timeTicks,
  },
  busbw: {
    log: false,
    unit: rateText,
    of(view, row) {
      const scale = row.busbw * row.time;
      return row.busbw ? { value: row.busbw, low: scale / row.high, high: scale / row.low } : null;
    },
    bound(view, nbytes) {
      return view.bound(nbytes) ? (nbytes / view.bound(nbytes) / 1e3) * share(view.setting.ranks) : null;
    },
    ticks: () => ({ rangemode: "tozero", nticks: 6 }),
  },
  distance: {
    log: true,
    unit: ratioText,
    reference: 1,
    of: (view, row) => (row.bound > 0 ? { value: row.time / row.bound, low: row.low / row.bound, high: row.high / row.bound } : null),
    bound: () => null,
    ticks: ratioTicks,
  },
  late: {
    log: false,
    unit: percentText,
    of: (view, row) => ({ value: row.lateness }),
    bound: () => null,
    ticks: () => ({ rangemode: "tozero", nticks: 5, tickformat: ".0%" }),
  },
};

// What all charts over sizes share: how a place on the axis is told, and its ticks.
const SIZES = { log: true, text: sizeText, ticks: sizeTicks };

// The values of one chart: a list of {algorithm, points: [{x, value, low, high}]}, x being the size.
function linesOf(chart, view) {
  const seen = (point) => point.value > 0 || (!chart.log && point.value === 0);
  const lines = view.algorithms.map((algorithm) => ({
    algorithm,
    points: view.right
      .filter((row) => row.algorithm === algorithm && row.nbytes > 0)
      .map((row) => ({ x: row.nbytes, ...chart.of(view, row) }))
      .filter(seen),
  }));
  const bound = view.sizes
    .map((nbytes) => ({ x: nbytes, value: chart.bound(view, nbytes) }))
    .filter((point) => point.x > 0 && point.value > 0);
  return [...lines, { algorithm: BOUND, points: bound }].filter((line) => line.points.length);
}

function traceOf(line) {
  const bound = line.algorithm === BOUND;
  const look = bound ? { variable: "--bound", dash: "1px,3px" } : lookOf(line.algorithm);
  const colour = colourOf(look.variable);
  const many = line.points.length > 120;
  const trace = {
    x: line.points.map((point) => point.x),
    y: line.points.map((point) => point.value),
    mode: bound || many ? "lines" : "lines+markers",
    line: { color: colour, width: bound ? 1.5 : 2, dash: look.dash },
    marker: { color: colour, size: 6.5, symbol: look.shape, line: { color: colour, width: 1.5 } },
    hoverinfo: "none",
    showlegend: false,
  };
  return bound || many ? trace : { ...trace, error_y: intervals(line, colour) };
}

function intervals(line, colour) {
  const reach = (point, end) => (end > 0 ? Math.abs(end - point.value) : 0);
  return {
    type: "data",
    symmetric: false,
    array: line.points.map((point) => reach(point, point.high)),
    arrayminus: line.points.map((point) => reach(point, point.low)),
    color: colour,
    thickness: 1.2,
    width: 2.5,
  };
}

// Ticks at powers of two, as many as the width has room for: 8 B, 1 KiB, 1 MiB.
function sizeTicks(sizes, width) {
  const first = Math.log2(Math.min(...sizes));
  const last = Math.log2(Math.max(...sizes));
  const room = Math.max(2, Math.floor(width / 64));
  const step = [1, 2, 5, 10, 20].find((step) => (last - first) / step + 1 <= room) ?? 20;
  const powers = [];
  for (let power = Math.ceil(first / step) * step; power <= last; power += step) powers.push(power);
  const shown = powers.length ? powers.map((power) => 2 ** power) : [Math.min(...sizes)];
  return { tickvals: shown, ticktext: shown.map(sizeText) };
}

function timeTicks(low, high) {
  const decades = Math.log10(high / low);
  const steps = decades > 2.5 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 5];
  const shown = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const step of steps) shown.push(step * 10 ** power);
  return { tickvals: shown, ticktext: shown.map(tickTime) };
}

function tickTime(us) {
  const [value, unit] = scaled(us, 1000, ["µs", "ms", "s"]);
  return `${Number(value.toPrecision(3))}\u00a0${unit}`;
}

const RATIOS = [
  [1, 2, 5],
  [1, 1.5, 2, 3, 5, 7],
  [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 7, 8, 9],
  Array.from({ length: 180 }, (_, at) => 1 + at / 20),
];

// The coarsest of the series above that has four ticks in the range.
function ratioTicks(low, high) {
  const all = (series) => [-6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5].flatMap((power) => series.map((step) => step * 10 ** power));
  const inside = (series) => all(series).filter((ratio) => ratio >= low / 1.05 && ratio <= high * 1.05);
  const shown = RATIOS.map(inside).find((ticks) => ticks.length >= 4) ?? inside(RATIOS.at(-1));
  return { tickvals: shown, ticktext: shown.map((ratio) => `${Number(ratio.toPrecision(3))}×`) };
}

// What the layouts of all charts share.
function plainLayout() {
  return {
    margin: { l: 8, r: 12, t: 8, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.documentElement).fontFamily, size: 12, color: colourOf("--soft") },
    showlegend: false,
    dragmode: coarse() ? false : "zoom",
  };
}

function plainAxis() {
  return { gridcolor: colourOf("--grid"), zeroline: false, linecolor: colourOf("--line"), fixedrange: coarse(), automargin: true };
}

function bottomAxis() {
  return { ...plainAxis(), showgrid: false, ticks: "outside", tickcolor: colourOf("--line"), showline: true };
}

function layoutOf(chart, across, lines, places, width) {
  const values = lines.flatMap((line) => line.points.map((point) => point.value));
  if (chart.reference) values.push(chart.reference);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const edge = [Math.log10(Math.min(...places)), Math.log10(Math.max(...places))];
  const margin = (edge[1] - edge[0]) * 0.025 || 0.3;
  return {
    ...plainLayout(),
    hovermode: "x",
    shapes: chart.reference ? [reference(chart.reference)] : [],
    xaxis: { ...bottomAxis(), type: "log", range: [edge[0] - margin, edge[1] + margin], ...across.ticks(places, width - 70) },
    yaxis: { ...plainAxis(), type: chart.log ? "log" : "linear", ...(chart.log ? logRange(low, high) : {}), ...chart.ticks(low, high) },
  };
}

// A dotted line across a chart, at the value that would be perfect.
function reference(value) {
  const line = { color: colourOf("--bound"), width: 1.5, dash: "1px,3px" };
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line, layer: "below" };
}

function logRange(low, high) {
  const margin = Math.max(Math.log10(high / low) * 0.06, 0.03);
  return { range: [Math.log10(low) - margin, Math.log10(high) + margin] };
}

function coarse() {
  return matchMedia("(pointer: coarse)").matches;
}

const CONFIG = { displaylogo: false, displayModeBar: false, responsive: false, doubleClick: "reset" };

// Draw the chart of `name` over the sizes of a view, unless it is hidden; one that has nothing to show says why.
function drawBySize(name, view, hidden) {
  if (document.getElementById(name).hidden) return null;
  return draw({ name, chart: CHARTS[name], across: SIZES, lines: linesOf(CHARTS[name], view) }, hidden, () => absence(view));
}

function worthDrawing(name, view) {
  return view.right.length > 0 && WORTH[name](linesOf(CHARTS[name], view));
}

const WORTH = {
  speedup: (lines) => lines.some((line) => line.algorithm !== data.baseline),
  time: () => true,
  busbw: () => true,
  distance: (lines) => lines.length > 0,
  late: (lines) => lines.some((line) => line.points.some((point) => point.value > 0)),
};

// Draw lines into the figure `name` and return what was drawn; null, with a reason in its place, where there are none.
function draw({ name, chart, across, lines }, hidden, why) {
  const plot = document.querySelector(`#${name} .plot`);
  const compared = lines.filter((line) => line.algorithm !== BOUND);
  plot.classList.toggle("absent", !compared.length);
  if (!compared.length) {
    Plotly.purge(plot);
    plot.textContent = why();
    return null;
  }
  const shown = lines.filter((line) => !hidden.has(line.algorithm));
  const places = [...new Set(lines.flatMap((line) => line.points.map((point) => point.x)))].sort((a, b) => a - b);
  const layout = layoutOf(chart, across, shown.length ? shown : lines, places, plot.clientWidth);
  paint(plot, shown.map(traceOf), layout);
  return { name, chart, across, plot, lines: shown, places };
}

function paint(plot, traces, layout) {
  if (!plot.classList.contains("js-plotly-plot")) plot.textContent = "";
  Plotly.react(plot, traces, { ...layout, width: plot.clientWidth, height: plot.clientHeight }, CONFIG);
}

function absence(view) {
  return view.setting.ranks === 1 ? "One rank uses no link, so there is no bus bandwidth." : "Only empty vectors were measured.";
}
