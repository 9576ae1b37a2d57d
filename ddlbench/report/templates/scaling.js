// How efficiency falls as nodes or ranks are added, one algorithm a line, at one size.
const EFFICIENCY = {
  log: false,
  unit: percentText,
  reference: 1,
  ticks: () => ({ rangemode: "tozero", nticks: 6, tickformat: ".0%" }),
};

class Scaling {
  // `changed` is called when a reader chose another line or size.
  constructor(changed) {
    this.section = document.getElementById("scaling");
    this.along = document.getElementById("scaling-line");
    this.size = document.getElementById("scaling-size");
    this.along.onchange = () => {
      this.offerSizes();
      changed();
    };
    this.size.onchange = changed;
  }

  // Offer the lines of the setting's family.
  show(index) {
    this.lines = familyOf(index).lines;
    this.section.hidden = !this.lines.length;
    if (this.section.hidden) return;
    const through = this.lines.findIndex((line) => line.places.includes(index));
    this.along.replaceChildren(...this.lines.map(({ unit, fixed }, at) => element("option", { value: at }, `${unit}s ${fixed}`)));
    this.along.value = Math.max(0, through);
    this.along.closest("label").hidden = this.lines.length === 1;
    this.offerSizes();
  }

  get line() {
    return this.lines[this.along.value];
  }

  // Offer the sizes that the baseline and another have in common, at first the largest.
  offerSizes() {
    const before = this.size.value;
    const [base, ...others] = this.line.places.map(viewOf);
    const sizes = base.sizes.filter((nbytes) => nbytes > 0 && others.some((view) => view.sizes.includes(nbytes)));
    this.size.replaceChildren(...sizes.map((nbytes) => element("option", { value: nbytes }, sizeText(nbytes))));
    this.size.value = sizes.includes(Number(before)) ? before : (sizes.at(-1) ?? "");
  }

  // The values of all algorithms that the baseline has: {algorithm, points: [{x, value, low, high, time}]}.
  values() {
    const nbytes = Number(this.size.value);
    const [base] = this.line.places.map(viewOf);
    return base.algorithms
      .filter((algorithm) => base.at(algorithm, nbytes)?.busbw)
      .map((algorithm) => ({ algorithm, points: this.points(algorithm, nbytes, base) }))
      .filter((line) => line.points.length > 1);
  }

  points(algorithm, nbytes, base) {
    const first = base.at(algorithm, nbytes);
    return this.line.places.flatMap((place, at) => {
      const row = viewOf(place).at(algorithm, nbytes);
      if (!row?.busbw) return [];
      const value = row.busbw / first.busbw;
      const scale = (value * row.time) / first.time;
      const ends = at ? { low: (scale * first.low) / row.high, high: (scale * first.high) / row.low } : {};
      return [{ x: this.line.at[at], value, time: row.time, ...ends }];
    });
  }

  draw(hidden) {
    if (this.section.hidden) return null;
    const lines = this.values();
    this.say();
    this.section.querySelector(".scroll").replaceChildren(lines.length ? this.table(lines) : "");
    const { unit, at } = this.line;
    const ticks = { tickvals: at, ticktext: at.map((number, place) => (place ? grouped(number) : counted(number, unit))) };
    this.across ??= new Map();
    if (!this.across.has(this.line)) this.across.set(this.line, { text: (number) => counted(number, unit), ticks: () => ticks });
    const across = this.across.get(this.line);
    return draw({ name: "efficiency", chart: EFFICIENCY, across, lines }, hidden, () => "No algorithm was measured at two of these and one size.");
  }

  say() {
    const { unit, at, places } = this.line;
    const first = counted(at[0], unit);
    const starts = new Set(places.map((place) => data.settings[place].sync).filter(Boolean));
    const note =
      `Bus bandwidth over that of the baseline, N₀\u00a0=\u00a0${first}, at the same size: 100\u00a0% is a machine that takes ` +
      `more ${unit}s without loss. At small sizes latency alone lets it fall: more ${unit}s need more rounds.` +
      (starts.size > 1 ? " Starts were not aligned alike at all of these: by barrier at some, by window at others." : "");
    this.section.querySelector(".note").textContent = note;
  }

  table(lines) {
    const { unit, at } = this.line;
    const heads = [["Algorithm", "name"], ...at.map((number, place) => [`${counted(number, unit)}${place ? "" : ", N₀"}`, "number"])];
    const rows = lines.map(({ algorithm, points }) => {
      const found = new Map(points.map((point) => [point.x, point]));
      return element("tr", {}, named(algorithm, "th"), ...at.map((number, place) => this.cell(found.get(number), place)));
    });
    return table(heads, rows);
  }

  cell(point, place) {
    if (!point) return cell("");
    if (!place) return cell(timeText(point.time));
    return element("td", { class: "number" }, percentText(point.value), element("span", { class: "under" }, timeText(point.time)));
  }
}
