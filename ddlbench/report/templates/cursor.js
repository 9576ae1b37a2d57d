// Reading values: a line across all charts at one size, and a list of every algorithm's value there.
class Cursor {
  constructor() {
    this.tip = document.getElementById("tip");
    this.drawn = [];
  }

  // Follow the charts that were just drawn.
  follow(drawn) {
    this.drawn = drawn;
    this.hide();
    for (const one of drawn) this.listen(one);
  }

  listen({ plot }) {
    const here = () => this.drawn.find((one) => one.plot === plot);
    plot.removeAllListeners?.("plotly_hover");
    plot.removeAllListeners?.("plotly_unhover");
    plot.on("plotly_hover", (event) => here() && this.show(here(), event.points[0].x));
    plot.on("plotly_unhover", () => this.hide());
    plot.onkeydown = (event) => here() && this.key(here(), event);
    plot.onblur = () => this.hide();
  }

  key(one, event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.hide();
    if (!step) return;
    event.preventDefault();
    const at = one.sizes.indexOf(this.size);
    const next = at < 0 ? (step > 0 ? 0 : one.sizes.length - 1) : Math.min(Math.max(at + step, 0), one.sizes.length - 1);
    this.show(one, one.sizes[next]);
  }

  show(one, nbytes) {
    this.size = nbytes;
    for (const other of this.drawn) this.mark(other, nbytes);
    this.fill(one, nbytes);
    this.place(one, nbytes);
  }

  hide() {
    this.size = null;
    this.tip.hidden = true;
    for (const line of document.querySelectorAll(".cursor")) line.remove();
  }

  // The pixels of a size inside a chart.
  pixel({ plot }, nbytes) {
    const axis = plot._fullLayout.xaxis;
    return axis._offset + axis.d2p(nbytes);
  }

  mark(one, nbytes) {
    const area = one.plot._fullLayout._size;
    const line = one.plot.querySelector(".cursor") ?? one.plot.appendChild(element("div", { class: "cursor" }));
    line.style.left = `${this.pixel(one, nbytes)}px`;
    line.style.top = `${area.t}px`;
    line.style.height = `${area.h}px`;
  }

  fill(one, nbytes) {
    const values = one.lines
      .map((line) => ({ algorithm: line.algorithm, point: line.points.find((point) => point.nbytes === nbytes) }))
      .filter((value) => value.point)
      .sort((a, b) => b.point.value - a.point.value);
    const rows = values.map(({ algorithm, point }) => this.row(one.chart, algorithm, point));
    this.tip.replaceChildren(element("strong", {}, sizeText(nbytes)), element("table", {}, element("tbody", {}, ...rows)));
  }

  row(chart, algorithm, point) {
    const name = algorithm === BOUND ? "lower bound" : data.algorithms[algorithm];
    return element(
      "tr",
      {},
      element("td", { class: "name" }, keyOf(algorithm), name),
      element("td", { class: "number" }, chart.unit(point.value)),
      element("td", { class: "number range secondary" }, between(chart.unit, point.low, point.high)),
    );
  }

  place(one, nbytes) {
    this.tip.hidden = false;
    const box = one.plot.getBoundingClientRect();
    const x = box.left + this.pixel(one, nbytes);
    const width = this.tip.offsetWidth;
    const left = x + 14 + width < document.documentElement.clientWidth ? x + 14 : x - 14 - width;
    this.tip.style.left = `${Math.max(8, left) + scrollX}px`;
    this.tip.style.top = `${box.top + 12 + scrollY}px`;
  }
}
