// The tables, built from the same rows as the charts.
const LIMIT = 400; // rows of the full table that are built before a reader asks for all

// A short piece of an algorithm's line, with its marker.
function keyOf(algorithm) {
  const look = algorithm === BOUND ? { variable: "--bound", dash: "1px,3px", shape: "" } : lookOf(algorithm);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "key");
  svg.setAttribute("viewBox", "0 0 30 12");
  svg.setAttribute("aria-hidden", "true");
  svg.style.color = `var(${look.variable})`;
  const line = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
  line.setAttribute("d", "M0 6H30");
  line.setAttribute("style", `stroke:currentColor;stroke-width:2;fill:none;stroke-dasharray:${look.dash === "solid" ? "none" : look.dash}`);
  const mark = svg.appendChild(document.createElementNS(svg.namespaceURI, "path"));
  mark.setAttribute("d", MARKS[look.shape.replace("-open", "")] ?? "");
  mark.setAttribute("style", `stroke:currentColor;stroke-width:1.5;fill:${look.shape.endsWith("-open") ? "var(--paper)" : "currentColor"}`);
  return svg;
}

const MARKS = {
  circle: "M11.5 6a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
  square: "M12 3h6v6h-6z",
  diamond: "M15 1.5L19.5 6L15 10.5L10.5 6z",
  "triangle-up": "M15 2L19 9H11z",
  "triangle-down": "M15 10L19 3H11z",
  x: "M12 3L18 9M18 3L12 9",
  cross: "M15 2V10M11 6H19",
  star: "M15 1.5L16.3 4.7L19.5 5L17 7.2L17.8 10.5L15 8.7L12.2 10.5L13 7.2L10.5 5L13.7 4.7z",
};

function named(algorithm, tag = "td", kind = "") {
  return element(tag, { class: `name ${kind}` }, keyOf(algorithm), data.algorithms[algorithm]);
}

function cell(text, kind = "number") {
  return element("td", { class: kind }, text ?? "");
}

function table(heads, rows) {
  const head = element("tr", {}, ...heads.map(([text, kind]) => element("th", { scope: "col", class: kind ?? "" }, text)));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

// Who wins at each size, by how much, and how near the bound.
function bestTable(view) {
  const columns = {
    against: view.setting.best.some(([nbytes]) => view.at(data.baseline, nbytes)),
    bound: view.right.some((row) => row.bound > 0),
    bus: view.right.some((row) => row.busbw > 0),
  };
  const heads = [
    ["Size", "number"],
    ["Fastest", "name"],
    ["Time", "number"],
    ["Lead", "number"],
    ["Next best", "name"],
    ["95 % interval", "number secondary"],
    ...(columns.bus ? [["Bus bandwidth", "number"]] : []),
    ...(columns.against ? [["Over mpi", "number secondary"]] : []),
    ...(columns.bound ? [["Times the bound", "number secondary"]] : []),
  ];
  return table(heads, view.setting.best.map((win) => bestRow(view, win, columns)));
}

function bestRow(view, [nbytes, winner, next, lead, outcome, rivals], columns) {
  const row = view.at(winner, nbytes);
  const base = view.at(data.baseline, nbytes);
  return element(
    "tr",
    {},
    element("th", { scope: "row", class: "number" }, sizeText(nbytes)),
    named(winner, "td", outcome === "clear" ? "winner" : ""),
    cell(timeText(row.time)),
    verdictCell(outcome, lead, rivals),
    next === null ? cell("", "name") : named(next),
    cell(between(timeText, row.low, row.high), "number range secondary"),
    ...(columns.bus ? [cell(rateText(row.busbw))] : []),
    ...(columns.against ? [cell(base ? ratioText(base.time / row.time) : "", "number secondary")] : []),
    ...(columns.bound ? [cell(boundText(row, (bound) => ratioText(row.time / bound)), "number secondary")] : []),
  );
}

function verdictCell(outcome, lead, rivals) {
  if (outcome === "alone") return cell("only one measured", "number unclear");
  if (outcome === "clear") return cell(ratioText(lead));
  const made = cell(outcome === "unknown" ? "no intervals to tell by" : "no clear winner", "number unclear");
  made.title = why(outcome, rivals);
  return made;
}

// Why there is no clear winner.
function why(outcome, rivals) {
  if (outcome === "unknown") return "no intervals to tell by";
  return `the interval overlaps that of ${rivals.map((rival) => data.algorithms[rival]).join(", ")}`;
}

// What all tensors of a workload take together.
function workloadTable(view) {
  const { totals, best, nbytes } = view.setting.workload;
  const base = totals.find(([algorithm]) => algorithm === data.baseline)?.[1];
  const heads = [["Algorithm", "name"], ["Total time", "number"], ["Bytes over time", "number"], ...(base ? [["Over mpi", "number"]] : [])];
  const line = (name, time, missing) =>
    element(
      "tr",
      {},
      name,
      time ? cell(timeText(time)) : cell(missing ? `lacks ${missing} size${missing > 1 ? "s" : ""}` : "", "number unclear"),
      cell(time ? rateText(nbytes / time / 1e3) : ""),
      ...(base ? [cell(time ? ratioText(base / time) : "")] : []),
    );
  const rows = totals.map(([algorithm, time, , , missing]) => line(named(algorithm, "th"), time, missing));
  if (best) rows.unshift(line(element("th", { scope: "row", class: "name" }, "the best of each size"), best[0], 0));
  return table(heads, rows);
}

// Every point of the setting; a heading sorts.
const RESULTS = [
  ["Algorithm", "algorithm", "name", (row) => row.algorithm],
  ["Size", "nbytes", "number", (row) => sizeText(row.nbytes)],
  ["Elements", "count", "number", (row) => grouped(row.count)],
  ["Time", "time", "number", (row) => digits(row.time)],
  ["Time is the", "statistic", "name", (row) => row.statistic],
  ["95 % interval", "low", "number range", (row) => (row.low > 0 ? `${digits(row.low)} – ${digits(row.high)}` : "")],
  ["Min", "min", "number", (row) => digits(row.min)],
  ["p99", "p99", "number", (row) => digits(row.p99)],
  ["algbw", "algbw", "number", (row) => digits(row.algbw)],
  ["busbw", "busbw", "number", (row) => digits(row.busbw)],
  ["Bound", "bound", "number", (row) => boundText(row, digits)],
  ["Limit", "limit", "name", (row) => row.limit],
  ["Model", "model", "number", (row) => digits(row.model)],
  ["Samples", "samples", "number", (row) => String(row.samples)],
  ["Late", "lateness", "number", (row) => (row.late ? percentText(row.lateness) : "")],
  ["Ended by", "stopped", "name", (row) => data.stops[row.stopped] ?? ""],
  ["Wrong", "wrong", "number", (row) => (row.wrong === null ? (row.time > 0 ? "not checked" : "") : grouped(row.wrong))],
  ["Status", "status", "status", (row) => data.statuses[row.status]],
];

class Results {
  constructor(place, more) {
    Object.assign(this, { place, more, order: ["nbytes", 1] });
  }

  show(view) {
    this.rows = view.rows;
    this.limit = LIMIT;
    this.columns = RESULTS.filter(([, key]) => view.rows.some((row) => (row[key] ?? null) !== null || key === "wrong"));
    this.render();
  }

  sorted() {
    const [key, sign] = this.order;
    const lacks = (row) => (row[key] ?? null) === null;
    const compare = (a, b) =>
      lacks(a) - lacks(b) || sign * ((a[key] ?? 0) - (b[key] ?? 0)) || a.nbytes - b.nbytes || a.algorithm - b.algorithm;
    return [...this.rows].sort(compare);
  }

  render() {
    const rows = this.sorted().slice(0, this.limit).map((row) => this.row(row));
    const heads = this.columns.map((column) => this.head(column));
    this.place.replaceChildren(
      element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)),
    );
    this.offerMore();
  }

  row(row) {
    const cells = this.columns.map(([, key, kind, text]) => {
      if (key === "algorithm") return named(row.algorithm, "th");
      return cell(text(row), key === "status" ? `status ${data.statuses[row.status]}` : kind);
    });
    return element("tr", {}, ...cells);
  }

  head([text, key, kind]) {
    const button = element("button", { type: "button" }, text);
    button.onclick = () => {
      this.order = [key, this.order[0] === key ? -this.order[1] : 1];
      this.render();
      this.place.querySelector(`th[data-key="${key}"] button`).focus();
    };
    const head = element("th", { scope: "col", class: kind, "data-key": key }, button);
    if (this.order[0] === key) head.setAttribute("aria-sort", this.order[1] > 0 ? "ascending" : "descending");
    return head;
  }

  offerMore() {
    this.more.replaceChildren();
    if (this.rows.length <= this.limit) return;
    const button = element("button", { type: "button" }, `Show all ${grouped(this.rows.length)} rows`);
    button.onclick = () => {
      this.limit = Infinity;
      this.render();
    };
    this.more.append(button);
  }
}
