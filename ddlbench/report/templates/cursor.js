// Reading values: a line across all charts at one place, and a list of every algorithm's value there.
const tip = document.getElementById("tip");

// Show `content` beside a point of a chart, given in pixels inside it.
function showTip(plot, x, y, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = plot.getBoundingClientRect();
  const width = tip.offsetWidth;
  const right = box.left + x + 14;
  const left = right + width < document.documentElement.clientWidth ? right : box.left + x - 14 - width;
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${box.top + y + scrollY}px`;
}

function listening(plot, events) {
  for (const [name, heard] of Object.entries(events)) {
    plot.removeAllListeners?.(`plotly_${name}`);
    plot.on(`plotly_${name}`, heard);
  }
}

class Cursor {
  // `open` is called with the chart, the algorithm (null: none in particular) and the place that a reader chose.
  constructor(open) {
    this.open = open;
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
    listening(plot, {
      hover: (event) => here() && this.show(here(), event.points[0].x),
      unhover: () => this.hide(),
      click: (event) => here() && this.click(here(), event),
    });
    plot.onkeydown = (event) => here() && this.key(here(), event);
    plot.onblur = () => this.hide();
  }

  key(one, event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.hide();
    if (event.key === "Enter" && one.places.includes(this.at)) this.open(one, null, this.at);
    if (!step) return;
    event.preventDefault();
    const at = one.places.indexOf(this.at);
    const last = one.places.length - 1;
    const next = at < 0 ? (step > 0 ? 0 : last) : Math.min(Math.max(at + step, 0), last);
    this.show(one, one.places[next]);
  }

  // Open the point whose height is nearest to that of the click.
  click(one, { points, event }) {
    const height = event.clientY - one.plot.getBoundingClientRect().top;
    const far = (point) => Math.abs(point.yaxis._offset + point.yaxis.d2p(point.y) - height);
    const near = points.reduce((best, point) => (far(point) < far(best) ? point : best));
    const { algorithm } = one.lines[near.curveNumber];
    this.open(one, algorithm === BOUND ? null : algorithm, near.x);
  }

  show(one, at) {
    this.at = at;
    for (const other of this.drawn.filter((other) => other.across === one.across)) this.mark(other, at);
    showTip(one.plot, this.pixel(one, at), 12, ...this.content(one, at));
  }

  hide() {
    this.at = null;
    tip.hidden = true;
    for (const line of document.querySelectorAll(".cursor")) line.remove();
  }

  // The pixels of a place inside a chart.
  pixel({ plot }, at) {
    const axis = plot._fullLayout.xaxis;
    return axis._offset + axis.d2p(at);
  }

  mark(one, at) {
    const area = one.plot._fullLayout._size;
    const line = one.plot.querySelector(".cursor") ?? one.plot.appendChild(element("div", { class: "cursor" }));
    line.style.left = `${this.pixel(one, at)}px`;
    line.style.top = `${area.t}px`;
    line.style.height = `${area.h}px`;
  }

  content(one, at) {
    const values = one.lines
      .map((line) => ({ algorithm: line.algorithm, point: line.points.find((point) => point.x === at) }))
      .filter((value) => value.point)
      .sort((a, b) => b.point.value - a.point.value);
    const rows = values.map(({ algorithm, point }) => this.row(one.chart, algorithm, point));
    return [element("strong", {}, one.across.text(at)), element("table", {}, element("tbody", {}, ...rows))];
  }

  row(chart, algorithm, point) {
    const name = algorithm === BOUND ? "lower bound" : data.algorithms[algorithm];
    return element(
      "tr",
      {},
      element("td", { class: "name" }, keyOf(algorithm), name),
      element("td", { class: "number" }, chart.unit(point.value)),
      ...(point.time ? [element("td", { class: "number" }, timeText(point.time))] : []),
      element("td", { class: "number range secondary" }, between(chart.unit, point.low, point.high)),
    );
  }
}
