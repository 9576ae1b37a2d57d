// How efficiency falls as nodes or ranks are added: a line for each algorithm, and a table of all shapes.
const EFFICIENCY = {
  log: false,
  unit: percentText,
  reference: 1,
  ticks: () => ({ rangemode: "tozero", nticks: 6, tickformat: ".0%" }),
};
const BEST = null; // stands for the best algorithm of each size where algorithms are listed
const SHOWN = 2; // algorithms in the table before a reader asks for all, besides the MPI library's own

class Scaling {
  // `changed` is called when a reader chose another line, vector or baseline.
  constructor(changed) {
    this.section = document.getElementById("scaling");
    this.along = document.getElementById("scaling-line");
    this.of = document.getElementById("scaling-size");
    this.against = document.getElementById("scaling-base");
    this.along.onchange = this.of.onchange = changed;
    this.against.onchange = () => {
      this.offerSubjects();
      changed();
    };
    this.whole = false;
  }

  // Offer the lines, shapes and vectors of the setting's family.
  show(index) {
    const before = this.family;
    this.family = familyOf(index);
    const { layouts, lines, base } = this.family;
    this.section.hidden = !layouts.length;
    if (this.section.hidden) return;
    offer(this.along, lines.map(({ unit, fixed }) => `${unit}s ${fixed}`));
    this.along.value = Math.max(0, lines.findIndex((line) => line.places.includes(index)));
    this.along.closest("label").hidden = lines.length < 2;
    for (const part of ["figure", ".legend"]) this.section.querySelector(part).hidden = !lines.length;
    if (this.family !== before) this.offerBases(layouts, base);
    this.offerSubjects();
  }

  // Offer the shapes that have a bus bandwidth; where the one that was asked for is none of them, there is no other.
  offerBases(layouts, base) {
    const able = layouts.map((layout, at) => [layout, at]).filter(([layout]) => layout.ranks > 1);
    this.against.replaceChildren(...able.map(([layout, at]) => element("option", { value: at }, `${layout.name} (${layout.words})`)));
    this.against.value = base ?? "";
  }

  // Offer the workloads, and the sizes that the baseline and another shape have in common: at first the last.
  offerSubjects() {
    const before = this.of.selectedOptions[0]?.text;
    const { workloads, layouts } = this.family;
    const sizes = layouts.map((layout) => sizesOf(layout));
    const base = this.base === null ? new Set(sizes.flatMap((some) => [...some])) : sizes[this.base];
    const common = [...base].filter((nbytes) => nbytes > 0 && sizes.some((some, at) => at !== this.base && some.has(nbytes))).sort((a, b) => a - b);
    this.subjects = [...common.map((nbytes) => ({ nbytes, title: sizeText(nbytes) })), ...workloads];
    offer(this.of, this.subjects.map(({ title, parts }) => (parts ? `${title} (${parts})` : title)));
    const again = [...this.of.options].findIndex((option) => option.text === before);
    this.of.value = again < 0 ? this.subjects.length - 1 : again;
  }

  get line() {
    return this.family.lines[this.along.value];
  }

  get subject() {
    return this.subjects[this.of.value];
  }

  // The position of the baseline among the shapes; null where there is none.
  get base() {
    return this.against.value === "" ? null : Number(this.against.value);
  }

  // The algorithms that any shape has.
  get algorithms() {
    const found = this.family.layouts.flatMap((layout) => layout.places.flatMap((place) => viewOf(place).algorithms));
    return [...new Set(found)].sort((a, b) => a - b);
  }

  // What an algorithm took on a shape: {time, low, high, bound}, or {why} where there is no time.
  figure(algorithm, at) {
    const { subject, family } = this;
    const layout = family.layouts[at];
    if (subject.cells) {
      const cell = subject.cells.find(([name]) => name === algorithm)[1][at];
      return typeof cell === "string" ? { why: cell } : Object.fromEntries(["time", "low", "high", "bound"].map((name, place) => [name, cell[place]]));
    }
    for (const place of layout.places) {
      const row = viewOf(place).at(algorithm, subject.nbytes);
      if (row) return row;
    }
    const rows = layout.places.flatMap((place) => viewOf(place).rows);
    const row = rows.find((one) => one.algorithm === algorithm && one.nbytes === subject.nbytes);
    return { why: row ? data.statuses[row.status] : "not measured" };
  }

  // The figure with what follows from it and from that of the baseline.
  scaled(algorithm, at) {
    const { layouts } = this.family;
    const found = { ...this.figure(algorithm, at), ranks: layouts[at].ranks };
    if (!found.time) return found;
    if (found.ranks < 2) return { ...found, why: "one rank uses no link" };
    found.busbw = (this.subject.nbytes / found.time / 1e3) * share(found.ranks);
    if (this.base === null) return { ...found, why: "the baseline was not measured" };
    const base = this.figure(algorithm, this.base);
    if (!base.time) return { ...found, why: `N₀: ${base.why}` };
    const wire = share(found.ranks) / share(layouts[this.base].ranks);
    found.efficiency = (wire * base.time) / found.time;
    found.speedup = (found.efficiency * found.ranks) / layouts[this.base].ranks;
    if (at !== this.base) Object.assign(found, { least: (wire * base.low) / found.high, most: (wire * base.high) / found.low });
    return found;
  }

  // The values of all algorithms along the line: {algorithm, points: [{x, value, low, high, time}]}.
  values() {
    if (!this.subject) return [];
    return this.algorithms.map((algorithm) => ({ algorithm, points: this.points(algorithm) })).filter(({ points }) => points.length > 1);
  }

  // The places of the line that are drawn, with their numbers: those inside one node are not, against one over several.
  drawn() {
    const { line, family } = this;
    const all = line.places.map((place, at) => [family.layouts.findIndex((layout) => layout.places[0] === place), line.at[at]]);
    if (this.base === null || family.layouts[this.base].nodes === 1) return all;
    const over = all.filter(([layout]) => family.layouts[layout].nodes > 1);
    return over.length ? over : all;
  }

  points(algorithm) {
    return this.drawn().flatMap(([layout, x]) => {
      const { efficiency: value, least, most, time } = this.scaled(algorithm, layout);
      return value ? [{ x, value, time, ...(least ? { low: least, high: most } : {}) }] : [];
    });
  }

  draw(hidden) {
    if (this.section.hidden) return null;
    this.say();
    this.fill();
    if (!this.line) return null;
    const { unit } = this.line;
    const at = this.drawn().map(([, number]) => number);
    const ticks = { tickvals: at, ticktext: at.map((number, place) => (place ? grouped(number) : counted(number, unit))) };
    const key = `${this.along.value} ${at}`;
    if (this.across?.key !== key) this.across = { key, text: (number) => counted(number, unit), ticks: () => ticks };
    const none = () => "No algorithm was measured at two of these and one size.";
    return draw({ name: "efficiency", chart: EFFICIENCY, across: this.across, lines: this.values() }, hidden, none);
  }

  say() {
    this.section.querySelector(".note").replaceChildren(...this.told().map((text) => element("p", {}, text)));
  }

  told() {
    const { layouts, notes } = this.family;
    if (!this.subject) return ["No vector was measured on two of these shapes."];
    if (this.base === null) return ["The baseline that was asked for was not measured with this setting, so there is no efficiency."];
    const { name, words } = layouts[this.base];
    const { title, parts } = this.subject;
    const of = parts ? `all ${parts} of ${title}` : `vectors of ${title}`;
    const left = this.line && this.line.places.length > this.drawn().length;
    return [
      `Bus bandwidth over that of N₀ = ${name} (${words}), same algorithm, ${of}: 100 % is a machine that takes more ranks without loss. ` +
        "At small sizes latency alone lets it fall: more ranks need more rounds.",
      ...notes[this.base],
      ...(left ? ["The chart leaves out what is inside one node."] : []),
    ];
  }

  // The algorithms of the table, the best of each size first, then by the time on the largest shape that they have.
  ordered() {
    const { subject, family } = this;
    const names = subject.cells ? subject.cells.map(([name]) => name) : this.algorithms.filter((name) => family.layouts.some((_, at) => this.figure(name, at).time));
    const times = new Map(names.map((name) => [name, family.layouts.map((_, at) => this.figure(name, at).time ?? Infinity).reverse()]));
    const later = (a, b) => times.get(a).reduce((sign, time, at) => sign || (time === times.get(b)[at] ? 0 : time - times.get(b)[at]), 0);
    return names.sort((a, b) => (b === BEST) - (a === BEST) || later(a, b) || a - b);
  }

  // Build the table: a body for each algorithm, a row in it for each shape.
  fill() {
    const all = this.subject ? this.ordered() : [];
    const first = all.filter((name, at) => at < (all[0] === BEST ? SHOWN : SHOWN - 1) || name === data.baseline);
    const shown = this.whole ? all : first;
    const groups = shown.map((algorithm) => ({ algorithm, rows: this.family.layouts.map((_, at) => this.scaled(algorithm, at)) }));
    const columns = COLUMNS.filter(([, , , has]) => !has || groups.some(({ rows }) => rows.some(has)));
    const head = element("tr", {}, ...columns.map(([title, kind]) => element("th", { scope: "col", class: kind }, title)));
    const bodies = groups.map(({ algorithm, rows }) => this.body(algorithm, rows, columns));
    const made = bodies.length ? [element("table", {}, element("thead", {}, head), ...bodies)] : [];
    this.section.querySelector(".scroll").replaceChildren(...made);
    this.offerMore(first.length, all.length);
  }

  body(algorithm, rows, columns) {
    const name = algorithm === BEST ? element("th", { class: "name" }, "best of each size") : named(algorithm, "th");
    name.setAttribute("rowspan", rows.length);
    name.setAttribute("scope", "rowgroup");
    const cells = (at) => columns.slice(1).map(([, kind, text]) => cell(text(rows[at], this.family.layouts[at], at === this.base, this), kind));
    const kind = (row, at) => (at === this.base ? "base" : row.why || this.remark(row, this.family.layouts[at]) ? "apart" : "");
    const made = rows.map((row, at) => element("tr", { class: kind(row, at) }, ...(at ? [] : [name]), ...cells(at)));
    return element("tbody", {}, ...made);
  }

  offerMore(first, all) {
    const place = this.section.querySelector(".more");
    place.replaceChildren();
    if (first === all) return;
    const words = this.whole ? "Show the fastest only" : `Show all ${grouped(all)} algorithms`;
    const button = element("button", { type: "button" }, words);
    button.onclick = () => {
      this.whole = !this.whole;
      this.fill();
      place.querySelector("button").focus();
    };
    place.append(button);
  }

  // Why figures are lacking, or that they are not comparable with those of the baseline.
  remark(row, layout) {
    if (row.why) return row.why;
    const over = this.base !== null && this.family.layouts[this.base].nodes > 1;
    return over && layout.nodes === 1 ? "inside one node" : "";
  }
}

// The columns of the table: title, kind, the text of a cell, and whether a row has anything to stand in it.
const NONE = "n/a";
const COLUMNS = [
  ["Algorithm", "name"],
  ["Nodes", "number", (_, layout) => grouped(layout.nodes)],
  ["Per node", "number", (_, layout) => layout.per_node || "uneven"],
  ["Ranks", "number", (_, layout) => grouped(layout.ranks)],
  ["Time", "number", (row) => timeText(row.time) || NONE],
  ["95 % interval", "number range secondary", (row) => between(timeText, row.low, row.high) || NONE, (row) => row.low > 0],
  ["Bus bandwidth", "number", (row) => rateText(row.busbw) || NONE],
  ["Speed-up", "number", (row) => (row.speedup ? digits(row.speedup) : NONE)],
  ["Efficiency", "number", (row, _, base) => (row.efficiency ? (base ? "N₀" : percentText(row.efficiency)) : NONE)],
  ["Times the bound", "number secondary", (row) => (row.bound > 0 && row.time ? ratioText(row.time / row.bound) : NONE), (row) => row.bound > 0 && row.time],
  ["Remark", "remark", (row, layout, _, scaling) => scaling.remark(row, layout), (row) => row.why || row.efficiency],
];

// The sizes that any algorithm has on a shape.
function sizesOf(layout) {
  return new Set(layout.places.flatMap((place) => viewOf(place).sizes));
}

function offer(menu, words) {
  menu.replaceChildren(...words.map((text, value) => element("option", { value }, text)));
}
