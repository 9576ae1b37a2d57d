// The samples of one point: in the order taken, their distribution, and how late each rank was.
const SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const CODES = new Map([...SIGNS].map((sign, code) => [sign, code]));

// Numbers between 0 and 1, two characters each.
function decoded(text) {
  const levels = new Array(text.length / 2);
  for (let at = 0; at < levels.length; at++) levels[at] = (64 * CODES.get(text[2 * at]) + CODES.get(text[2 * at + 1])) / 4095;
  return levels;
}

let parsed = null;

function held(index) {
  parsed ??= JSON.parse(document.getElementById("held").textContent);
  return { ...parsed.settings[index], orders: parsed.passes };
}

// What the page holds of a row's samples, times in µs. `whole`: all of them, in the order taken; else order statistics.
function samplesOf(view, row) {
  const { drawn, quartiles, maps, passes, orders } = held(view.index);
  if (!drawn[row.at]) return null;
  const fastest = Math.max(row.min, 0.001);
  const times = (text) => decoded(text).map((level) => fastest * (Math.max(row.max, 0.001) / fastest) ** level);
  const values = times(drawn[row.at]);
  const whole = values.length === row.samples;
  const inPasses = orders[passes[row.at]];
  const parts = quartiles?.[row.at] ? times(quartiles[row.at]) : [];
  return {
    values,
    whole,
    passes: whole ? passesOf(values, inPasses) : [],
    quartiles: Array.from({ length: parts.length / 3 }, (_, at) => parts.slice(3 * at, 3 * at + 3)),
    map: maps?.[row.at] ?? null,
  };
}

// The samples of each pass that gave any: {first, values}.
function passesOf(values, numbers) {
  const told = numbers.reduce((sum, number) => sum + number, 0) === values.length ? numbers : [values.length];
  let first = 0;
  const parts = told.map((number) => ({ first, values: values.slice(first, (first += number)) }));
  return parts.filter((part) => part.values.length);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// The share of samples that took no longer, for each of some sorted times: {x, y}.
function shares({ values, whole }) {
  const sorted = [...values].sort((a, b) => a - b);
  const last = sorted.length - 1;
  return sorted.map((x, at) => ({ x, y: whole ? (at + 1) / (last + 1) : last ? at / last : 1 }));
}

// The time from which on samples are drawn at the edge, so that a few slow ones do not flatten all others.
function fence(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (part) => sorted[Math.floor(part * (sorted.length - 1))];
  const far = at(0.75) + 6 * Math.max(at(0.75) - at(0.25), 0.02 * at(0.5));
  return sorted.at(-1) > 1.5 * far ? far : sorted.at(-1);
}

function timeAxis(axis, values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (high / low < 6) return { ...axis, ...linearTimes(low, high) };
  return { ...axis, type: "log", ...logRange(low, high), ...timeTicks(low, high) };
}

// A linear axis in the unit of its greatest time.
function linearTimes(low, high) {
  const margin = (high - low) * 0.06 || high * 0.05;
  const [, unit] = scaled(high, 1000, ["µs", "ms", "s"]);
  const scale = { µs: 1, ms: 1e3, s: 1e6 }[unit];
  const step = niceStep((high - low + 2 * margin) / scale / 5) * scale;
  const tickvals = [];
  for (let tick = Math.ceil((low - margin) / step) * step; tick <= high + margin; tick += step) tickvals.push(tick);
  const places = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
  const ticktext = tickvals.map((tick) => `${(tick / scale).toFixed(places)}\u00a0${unit}`);
  return { type: "linear", range: [Math.max(0, low - margin), high + margin], tickvals, ticktext };
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least) ?? 10 * power;
}

// Reads the spots of a chart, [{x, y, words}], by pointing and by arrow keys; `beside` are steps of the arrows.
class Reader {
  constructor(plot, title) {
    Object.assign(this, { plot, title, spots: [], at: -1 });
  }

  follow(spots, across = 1) {
    Object.assign(this, { spots, across, at: -1 });
    listening(this.plot, { hover: (event) => this.show(this.spotOf(event.points[0])), unhover: () => this.hide() });
    this.plot.onkeydown = (event) => this.key(event);
    this.plot.onblur = () => this.hide();
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-label", `${this.title}, chart; arrow keys read its values`);
  }

  spotOf(point) {
    return point.pointIndex?.length ? point.pointIndex[0] * this.across + point.pointIndex[1] : point.customdata;
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: this.across > 1 ? this.across : 0, ArrowDown: this.across > 1 ? -this.across : 0 }[event.key];
    if (event.key === "Escape") this.hide();
    if (!step) return;
    event.preventDefault();
    const next = this.at < 0 ? (step > 0 ? 0 : this.spots.length - 1) : this.at + step;
    if (next >= 0 && next < this.spots.length) this.show(next);
  }

  show(at) {
    const spot = this.spots[at];
    if (!spot) return;
    this.at = at;
    const { xaxis, yaxis } = this.plot._fullLayout;
    showTip(this.plot, xaxis._offset + xaxis.d2p(spot.x), yaxis._offset + yaxis.d2p(spot.y) + 10, ...spot.words());
  }

  hide() {
    this.at = -1;
    tip.hidden = true;
  }
}

class Samples {
  constructor() {
    this.section = document.getElementById("samples");
    this.algorithm = document.getElementById("sample-algorithm");
    this.size = document.getElementById("sample-size");
    this.algorithm.onchange = () => this.choose(Number(this.algorithm.value), Number(this.size.value));
    this.size.onchange = () => this.choose(Number(this.algorithm.value), Number(this.size.value));
    this.readers = Object.fromEntries(
      ["order", "spread", "lateness"].map((name) => [name, new Reader(this.plot(name), this.figure(name).querySelector("h3").textContent)]),
    );
  }

  figure(name) {
    return document.getElementById(name);
  }

  plot(name) {
    return document.querySelector(`#${name} .plot`);
  }

  // Offer the points of a view, at first the winner of its largest size.
  show(view) {
    this.view = view;
    const { drawn } = held(view.index);
    this.rows = view.rows.filter((row) => drawn[row.at]);
    this.section.hidden = !this.rows.length;
    if (this.section.hidden) return;
    const algorithms = [...new Set(this.rows.map((row) => row.algorithm))].sort((a, b) => a - b);
    this.algorithm.replaceChildren(...algorithms.map((algorithm) => element("option", { value: algorithm }, data.algorithms[algorithm])));
    const largest = view.setting.best.at(-1);
    const { algorithm, nbytes } = this.row ?? {};
    if (this.find(algorithm, nbytes)) this.offer(algorithm, nbytes);
    else if (largest && this.find(largest[1], largest[0])) this.offer(largest[1], largest[0]);
    else this.offer(this.rows.at(-1).algorithm, this.rows.at(-1).nbytes);
  }

  find(algorithm, nbytes) {
    return this.rows.find((row) => row.algorithm === algorithm && row.nbytes === nbytes);
  }

  // Set the menus to a point: that of the algorithm (null: the one chosen before) at the size, or the nearest it has.
  offer(algorithm, nbytes) {
    const wanted = algorithm ?? this.row?.algorithm;
    const own = this.rows.filter((row) => row.algorithm === wanted);
    const among = own.length ? own : this.rows;
    const far = (row) => Math.abs(Math.log2(row.nbytes + 1) - Math.log2(nbytes + 1));
    this.row = among.reduce((best, row) => (far(row) < far(best) ? row : best));
    const sizes = [...new Set(this.rows.filter((row) => row.algorithm === this.row.algorithm).map((row) => row.nbytes))];
    this.size.replaceChildren(...sizes.map((size) => element("option", { value: size }, sizeText(size))));
    this.algorithm.value = this.row.algorithm;
    this.size.value = this.row.nbytes;
  }

  choose(algorithm, nbytes) {
    if (this.section.hidden) return;
    this.offer(algorithm, nbytes);
    this.draw(this.hidden);
  }

  // Bring the section into sight, and its menus into reach.
  reveal() {
    if (this.section.hidden) return;
    this.section.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    this.algorithm.focus({ preventScroll: true });
  }

  draw(hidden) {
    this.hidden = hidden;
    if (this.section.hidden) return;
    const found = samplesOf(this.view, this.row);
    this.section.querySelector(".note").replaceChildren(...this.words(found).map((text) => element("p", {}, text)));
    this.drawOrder(found);
    this.drawSpread(found);
    this.drawLateness(found.map);
  }

  words(found) {
    const { row } = this;
    const name = `${data.algorithms[row.algorithm]} at ${sizeText(row.nbytes)}`;
    const status = row.status ? `, ${data.statuses[row.status]}` : "";
    const middle = `median ${timeText(row.time)}${row.low > 0 ? ` (${between(timeText, row.low, row.high)})` : ""}`;
    const first = `${name}${status}: ${counted(row.samples, "sample")}, ${middle}, from ${timeText(row.min)} to ${timeText(row.max)}.`;
    const medians = found.passes.length ? found.passes.map((part) => median(part.values)) : found.quartiles.map((three) => three[1]);
    return [first, [this.ending(row), this.lateness(row), shiftOf(medians), this.cut(found)].filter(Boolean).join(" ")].filter(Boolean);
  }

  ending(row) {
    const why = { interval: "its interval was narrow enough", time: "its time was up", samples: "it had all its samples" };
    const stop = data.stops[row.stopped];
    return stop ? `It ended because ${why[stop]}.` : "";
  }

  lateness({ late, lateness }) {
    if (!late) return "";
    const [samples, were, was] = late === 1 ? ["sample", "was", "it"] : ["samples", "were", "them"];
    return `${grouped(late)} ${samples} (${percentText(lateness)}) ${were} left out: a rank was not ready for ${was}.`;
  }

  cut({ whole, values }) {
    return whole ? "" : `Of its samples this page keeps ${values.length} order statistics.`;
  }

  drawOrder(found) {
    const [note, plot] = [this.figure("order").querySelector("p"), this.plot("order")];
    const shown = found.whole || found.quartiles.length > 0;
    note.textContent = shown ? `${found.whole ? "Each sample, and the median of each pass" : "The median of each pass, and its quartiles"}; the band is the 95\u00a0% interval of the median.` : "";
    plot.classList.toggle("absent", !shown);
    if (!shown) {
      Plotly.purge(plot);
      plot.textContent = "The order is not kept for this point.";
      return;
    }
    if (found.whole) note.append(this.drawWhole(plot, found));
    else this.drawPasses(plot, found);
  }

  // Draw each sample, and return what there is to say of those that are beyond the chart.
  drawWhole(plot, { values, passes }) {
    const colour = colourOf(lookOf(this.row.algorithm).variable);
    const top = Math.max(fence(values), ...passes.map((part) => median(part.values)));
    const shown = values.map((value) => Math.min(value, top));
    const size = values.length > 400 ? 3 : 5;
    const dots = {
      x: values.map((_, at) => at + 1),
      y: shown,
      customdata: values.map((_, at) => at),
      mode: "markers",
      marker: {
        color: colour,
        size: values.map((value) => (value > top ? 7 : size)),
        symbol: values.map((value) => (value > top ? "triangle-up" : "circle")),
        opacity: values.length > 100 ? 0.55 : 0.85,
        line: { width: 0 },
      },
      hoverinfo: "none",
    };
    const levels = passes.map((part) => ({
      x: [part.first + 0.5, part.first + part.values.length + 0.5],
      y: Array(2).fill(median(part.values)),
      mode: "lines",
      line: { color: colourOf("--ink"), width: 2 },
      hoverinfo: "skip",
    }));
    const layout = {
      ...plainLayout(),
      hovermode: "closest",
      shapes: [this.band(), ...passes.slice(1).map((part) => parting(part.first + 0.5))].filter(Boolean),
      xaxis: { ...bottomAxis(), range: [0.5, values.length + 0.5], nticks: 6, tickformat: "d", title: { text: "sample", standoff: 6 } },
      yaxis: timeAxis(plainAxis(), shown),
    };
    paint(plot, [dots, ...levels], layout);
    const pass = (at) => passes.findLastIndex((part) => part.first <= at) + 1;
    this.readers.order.follow(
      values.map((y, at) => ({ x: at + 1, y: shown[at], words: () => [element("strong", {}, timeText(y)), `sample ${at + 1}, pass ${pass(at)}`] })),
    );
    const beyond = values.filter((value) => value > top).length;
    return beyond ? ` Triangles: ${counted(beyond, "sample")} beyond the chart.` : "";
  }

  drawPasses(plot, { quartiles }) {
    const colour = colourOf(lookOf(this.row.algorithm).variable);
    const trace = {
      x: quartiles.map((_, at) => at + 1),
      y: quartiles.map((three) => three[1]),
      customdata: quartiles.map((_, at) => at),
      error_y: {
        type: "data",
        symmetric: false,
        array: quartiles.map((three) => three[2] - three[1]),
        arrayminus: quartiles.map((three) => three[1] - three[0]),
        color: colour,
        thickness: 2,
        width: 4,
      },
      mode: "markers",
      marker: { color: colour, size: 9 },
      hoverinfo: "none",
    };
    const layout = {
      ...plainLayout(),
      hovermode: "closest",
      shapes: [this.band()].filter(Boolean),
      xaxis: { ...bottomAxis(), range: [0.5, quartiles.length + 0.5], dtick: 1, title: { text: "pass", standoff: 6 } },
      yaxis: timeAxis(plainAxis(), quartiles.flat()),
    };
    paint(plot, [trace], layout);
    this.readers.order.follow(
      quartiles.map(([low, y, high], at) => ({
        x: at + 1,
        y,
        words: () => [element("strong", {}, timeText(y)), `pass ${at + 1}, half of it within ${between(timeText, low, high)}`],
      })),
    );
  }

  // The interval of the median, as a band behind the samples.
  band() {
    const { low, high } = this.row;
    return low > 0 ? { type: "rect", xref: "paper", x0: 0, x1: 1, y0: low, y1: high, fillcolor: colourOf("--grid"), line: { width: 0 }, layer: "below" } : null;
  }

  drawSpread(found) {
    const others = this.view.rows.filter((row) => row.nbytes === this.row.nbytes && row !== this.row && !this.hidden.has(row.algorithm));
    const thin = others.map((row) => ({ row, steps: samplesOf(this.view, row) })).filter(({ steps }) => steps);
    const own = shares(found);
    const traces = [...thin.map(({ row, steps }) => stepsOf(row.algorithm, steps, false)), stepsOf(this.row.algorithm, found, true)];
    const layout = {
      ...plainLayout(),
      hovermode: "closest",
      xaxis: timeAxis(bottomAxis(), traces.flatMap((trace) => trace.x)),
      yaxis: { ...plainAxis(), range: [-0.02, 1.02], tickformat: ".0%", nticks: 5 },
    };
    paint(this.plot("spread"), traces, layout);
    const lines = [...thin.map(({ row, steps }) => ({ algorithm: row.algorithm, steps: shares(steps) })), { algorithm: this.row.algorithm, steps: own }];
    this.readSpread(lines.reverse());
  }

  // Spots of all lines, the chosen point's first; pointing finds them by line and place.
  readSpread(lines) {
    const spots = lines.flatMap(({ algorithm, steps }) =>
      steps.map(({ x, y }) => ({
        x,
        y,
        words: () => [element("strong", {}, keyOf(algorithm), ` ${data.algorithms[algorithm]}`), `${percentText(y)} took ${timeText(x)} or less`],
      })),
    );
    const starts = [];
    lines.reduce((sum, { steps }) => (starts.push(sum), sum + steps.length), 0);
    const reader = this.readers.spread;
    reader.follow(spots);
    reader.spotOf = (point) => starts[lines.length - 1 - point.curveNumber] + point.pointIndex;
  }

  drawLateness(map) {
    const figure = this.figure("lateness");
    figure.hidden = !map;
    if (!map) return;
    const [rows, columns, greatest, cells, laggard, part] = map;
    const ranks = this.view.setting.ranks;
    const levels = decoded(cells).map((level) => greatest * level ** 2);
    const z = Array.from({ length: rows }, (_, at) => levels.slice(at * columns, (at + 1) * columns));
    const most = [...levels].sort((a, b) => a - b)[Math.floor(0.98 * (levels.length - 1))] || greatest || 1;
    figure.querySelector("p").textContent = this.latenessNote(rows, columns, laggard, part);
    const plot = this.plot("lateness");
    plot.style.height = `${Math.min(28, 5 + 1.4 * rows)}rem`;
    const names = z.map((_, at) => rangeText(at, rows, ranks, 0));
    const trace = {
      type: "heatmap",
      z,
      zmin: 0,
      zmax: most,
      colorscale: [[0, colourOf("--still")], [1, colourOf("--late")]],
      colorbar: this.scale(most, greatest),
      hoverinfo: "none",
    };
    const every = Math.ceil(rows / 16);
    const layout = {
      ...plainLayout(),
      hovermode: "closest",
      xaxis: { ...bottomAxis(), range: [-0.5, columns - 0.5], ...sampleTicks(columns, this.row.samples), title: { text: "sample", standoff: 6 } },
      yaxis: { ...plainAxis(), showgrid: false, autorange: "reversed", tickvals: names.map((_, at) => at).filter((at) => at % every === 0), ticktext: names.filter((_, at) => at % every === 0), title: { text: "rank", standoff: 6 } },
    };
    paint(plot, [trace], layout);
    const words = (row, column) => () => [
      element("strong", {}, levels[row * columns + column] ? `${timeText(levels[row * columns + column])} late` : "the fastest"),
      `rank ${names[row]}, sample ${rangeText(column, columns, this.row.samples, 1)}`,
    ];
    this.readers.lateness.follow(
      levels.map((_, at) => ({ x: at % columns, y: Math.floor(at / columns), words: words(Math.floor(at / columns), at % columns) })),
      columns,
    );
  }

  latenessNote(rows, columns, laggard, part) {
    const { ranks } = this.view.setting;
    const { samples } = this.row;
    const parts = ["Each rank’s own time minus that of the fastest rank in the same sample."];
    if (part) parts.push(`Rank ${laggard} was the slowest most often, in ${percentText(part)} of the samples.`);
    if (rows < ranks) parts.push(`A row is the latest of ${Math.ceil(ranks / rows)} ranks or fewer.`);
    if (columns < samples) parts.push(`A column is the mean of ${Math.ceil(samples / columns)} samples or fewer.`);
    return parts.join(" ");
  }

  scale(most, greatest) {
    const ticks = [0, most / 2, most];
    const texts = ticks.map((us) => (us ? timeText(us) : "0"));
    if (greatest > most) texts[2] = `≥\u00a0${texts[2]}`;
    return { thickness: 10, outlinewidth: 0, tickvals: ticks, ticktext: texts, len: 1, xpad: 6 };
  }
}

// By how much the medians of the passes differ: drift of the machine.
function shiftOf(medians) {
  if (medians.length < 2) return "";
  return `The medians of its ${medians.length} passes lie between ${between(timeText, Math.min(...medians), Math.max(...medians)).replace("–", "and")}.`;
}

function parting(x) {
  return { type: "line", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: colourOf("--line"), width: 1 }, layer: "below" };
}

function stepsOf(algorithm, found, chosen) {
  const look = lookOf(algorithm);
  const steps = shares(found);
  return {
    x: steps.map((step) => step.x),
    y: steps.map((step) => step.y),
    mode: "lines",
    line: { color: colourOf(look.variable), width: chosen ? 3 : 1.2, dash: chosen ? "solid" : look.dash, shape: found.whole ? "hv" : "linear" },
    opacity: chosen ? 1 : 0.6,
    hoverinfo: "none",
  };
}

// The numbers, from `base` on, of those that a cell of several stands for: 7, or 8–11.
function rangeText(at, cells, all, base) {
  const first = Math.floor((at * all) / cells);
  const last = Math.floor(((at + 1) * all) / cells) - 1;
  return first === last ? String(first + base) : `${first + base}–${last + base}`;
}

function sampleTicks(columns, samples) {
  const number = Math.min(6, columns);
  const tickvals = Array.from({ length: number }, (_, at) => Math.round((at * (columns - 1)) / Math.max(1, number - 1)));
  return { tickvals, ticktext: tickvals.map((at) => String(Math.floor((at * samples) / columns) + 1)) };
}
