// The data of the page, and how its numbers, sizes and algorithms look.
const data = JSON.parse(document.getElementById("data").textContent);

const SHAPES = ["circle", "square", "diamond", "triangle-up", "x", "triangle-down", "cross", "star"];
const DASHES = ["solid", "6px,3px", "2px,2px", "9px,3px,2px,3px"];
const COLOURS = 7;

// The look of an algorithm: colours repeat after seven, then with other dashes and markers; vendors are grey.
function lookOf(algorithm) {
  const vendor = algorithm >= data.ours;
  const place = vendor ? algorithm - data.ours : algorithm;
  return {
    variable: vendor ? "--vendor" : `--series-${place % COLOURS}`,
    dash: vendor ? ["7px,4px", "3px,3px", "10px,4px,3px,4px"][place % 3] : DASHES[(place + 2 * Math.floor(place / COLOURS)) % DASHES.length],
    shape: vendor ? `${SHAPES[place % SHAPES.length]}-open` : SHAPES[place % SHAPES.length],
  };
}

function colourOf(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// Three significant digits; whole numbers from 100 on.
function digits(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0";
  if (value >= 100) return grouped(value);
  if (value >= 0.001) return Number(value).toPrecision(3);
  return value.toFixed(2 - Math.floor(Math.log10(value)));
}

// A whole number, with thin spaces between thousands.
function grouped(value) {
  return value === null || value === undefined ? "" : Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function scaled(value, base, units) {
  const power = value >= 1 ? Math.min(Math.floor(Math.log2(value) / Math.log2(base) + 1e-9), units.length - 1) : 0;
  return [value / base ** power, units[power]];
}

function sizeText(nbytes) {
  const [value, unit] = scaled(nbytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
  return `${value >= 100 ? Math.round(value) : Number(value.toPrecision(3))}\u00a0${unit}`;
}

function timeText(us) {
  if (us === null || us === undefined) return "";
  const [value, unit] = scaled(us, 1000, ["µs", "ms", "s"]);
  return `${digits(value)}\u00a0${unit}`;
}

function rateText(rate) {
  return rate === null || rate === undefined ? "" : `${digits(rate)}\u00a0GB/s`;
}

function ratioText(ratio) {
  if (ratio === null || ratio === undefined) return "";
  return `${ratio < 10 ? ratio.toFixed(2) : digits(ratio)}×`;
}

// An interval with its unit, said once where both ends have the same.
function between(text, low, high) {
  if (!(low > 0)) return "";
  const [from, unit] = text(low).split("\u00a0");
  const to = text(high);
  return `${unit === to.split("\u00a0")[1] ? from : text(low)} – ${to}`;
}

function percentText(share) {
  if (share === null || share === undefined) return "";
  if (share > 0 && share < 0.0005) return "<\u00a00.1\u00a0%";
  const percent = 100 * share;
  return `${percent >= 9.95 || percent === 0 ? Math.round(percent) : percent.toFixed(1)}\u00a0%`;
}

function counted(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
}

// The rows of a setting as objects, with the figures that follow from others.
function rowsOf(setting) {
  const columns = setting.rows;
  const names = Object.keys(columns).filter((name) => columns[name]);
  return columns.nbytes.map((_, at) => {
    const row = Object.fromEntries(names.map((name) => [name, columns[name][at]]));
    row.at = at;
    row.algbw = row.nbytes && row.time > 0 ? row.nbytes / row.time / 1e3 : null;
    row.busbw = row.algbw && setting.ranks > 1 ? row.algbw * share(setting.ranks) : null;
    row.lateness = row.late + row.samples > 0 ? row.late / (row.late + row.samples) : null;
    return row;
  });
}

// A text of the row's bound, or that there cannot be one.
function boundText(row, text) {
  if (row.bound > 0) return text(row.bound);
  return data.unbound.includes(row.algorithm) && row.nbytes > 0 && row.time > 0 ? "n/a" : "";
}

// What each rank must send and receive, in vectors.
function share(ranks) {
  return (2 * (ranks - 1)) / ranks;
}

class View {
  constructor(index) {
    const setting = data.settings[index];
    this.index = index;
    this.setting = setting;
    this.rows = rowsOf(setting);
    this.right = this.rows.filter((row) => row.status === 0 && row.time > 0);
    this.found = new Map(this.right.map((row) => [`${row.algorithm} ${row.nbytes}`, row]));
    this.sizes = [...new Set(this.right.map((row) => row.nbytes))];
    this.algorithms = [...new Set(this.right.map((row) => row.algorithm))].sort((a, b) => a - b);
  }
  at(algorithm, nbytes) {
    return this.found.get(`${algorithm} ${nbytes}`);
  }
  // The least bound at a size; none where an algorithm took part for which there is none.
  bound(nbytes) {
    if (this.algorithms.some((algorithm) => data.unbound.includes(algorithm) && this.at(algorithm, nbytes))) return null;
    const bounds = this.algorithms.map((algorithm) => this.at(algorithm, nbytes)?.bound).filter((bound) => bound > 0);
    return bounds.length ? Math.min(...bounds) : null;
  }
  get hasBound() {
    return this.sizes.some((nbytes) => this.bound(nbytes) > 0);
  }
}

const views = new Map();

function viewOf(index) {
  if (!views.has(index)) views.set(index, new View(index));
  return views.get(index);
}

// Building the page: text is only ever set as text.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
