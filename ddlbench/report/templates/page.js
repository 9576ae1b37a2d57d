// Putting it together: what is shown, and when it is drawn again.
class Page {
  constructor() {
    this.hidden = new Set();
    this.cursor = new Cursor((...chosen) => this.open(...chosen));
    this.map = new WinnerMap((index) => this.pick(index));
    this.scaling = new Scaling(() => {
      this.legend();
      this.redraw();
    });
    this.samples = new Samples();
    this.results = new Results(document.querySelector("#all .scroll"), document.querySelector("#all .more"));
    this.picker = document.getElementById("picker");
    if (this.picker) this.picker.onchange = () => this.show(Number(this.picker.value));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    addEventListener("resize", () => innerWidth !== this.width && this.redraw()); // a phone's bars change only the height
    addEventListener("beforeprint", () => this.onPaper(true));
    addEventListener("afterprint", () => this.onPaper(false));
  }

  // Draw the charts as large as paper has them: while this is called, the page is still laid out for the screen.
  onPaper(paper) {
    document.documentElement.classList.toggle("paper", paper);
    this.redraw();
  }

  show(index) {
    this.view = viewOf(index);
    this.say();
    this.map.show(index);
    this.samples.show(this.view);
    this.scaling.show(index);
    this.legend();
    this.redraw();
    this.tables();
  }

  // Show another setting, as the menu would.
  pick(index) {
    if (this.picker) this.picker.value = index;
    this.show(index);
  }

  // Show the samples of a point that was chosen in a chart.
  open(one, algorithm, at) {
    if (one.name === "efficiency") {
      const { line, subject } = this.scaling;
      this.pick(line.places[line.at.indexOf(at)]);
      if (!subject.cells) this.samples.choose(algorithm, subject.nbytes);
    } else this.samples.choose(algorithm, at);
    if (!coarse()) this.samples.reveal();
  }

  say() {
    const { label, headline, lede } = this.view.setting;
    document.getElementById("setting").textContent = label;
    document.getElementById("headline").replaceChildren(...headline.map(word));
    document.getElementById("lede").replaceChildren(...lede.map((sentence) => element("p", {}, ...sentence.map(word))));
  }

  // The algorithms of the setting, and in the section on scaling those of its line, as switches.
  legend() {
    const keys = [...this.view.algorithms, ...(this.view.hasBound ? [BOUND] : [])];
    this.switches(document.querySelector("#charts .legend"), keys);
    if (!this.scaling.section.hidden) this.switches(document.querySelector("#scaling .legend"), this.scaling.algorithms);
  }

  switches(place, keys) {
    place.replaceChildren(...keys.map((algorithm) => this.toggle(algorithm)));
    if (keys.length > 2) place.append(this.all(place, keys));
  }

  toggle(algorithm) {
    const name = algorithm === BOUND ? "lower bound" : data.algorithms[algorithm];
    const pressed = String(!this.hidden.has(algorithm));
    const button = element("button", { type: "button", "aria-pressed": pressed, "data-algorithm": algorithm }, keyOf(algorithm), name);
    button.onclick = () => {
      if (!this.hidden.delete(algorithm)) this.hidden.add(algorithm);
      for (const alike of document.querySelectorAll(`.legend [data-algorithm="${algorithm}"]`)) alike.setAttribute("aria-pressed", String(!this.hidden.has(algorithm)));
      this.redraw();
    };
    return button;
  }

  all(place, keys) {
    const button = element("button", { type: "button", class: "quiet" }, "All or none");
    button.onclick = () => {
      const none = keys.some((key) => this.hidden.has(key));
      this.hidden = new Set(none ? [] : keys);
      this.legend();
      this.redraw();
      place.querySelector(".quiet").focus();
    };
    return button;
  }

  redraw() {
    this.width = innerWidth;
    fillGrid(this.view);
    const bySize = Object.keys(CHARTS).map((name) => drawBySize(name, this.view, this.hidden));
    const drawn = [...bySize, this.scaling.draw(this.hidden)].filter(Boolean);
    this.samples.draw(this.hidden);
    this.cursor.follow(drawn);
    document.getElementById("hint").hidden = !bySize.some(Boolean);
    for (const { plot, name } of drawn) reachable(plot, TITLES[name] ?? `${document.querySelector(`#${name} h3`).textContent} against size`);
  }

  tables() {
    const { workload, best } = this.view.setting;
    document.getElementById("best").hidden = !best.length;
    document.querySelector("#best .scroll").replaceChildren(bestTable(this.view));
    document.getElementById("workload").hidden = !workload;
    if (workload) this.workload(workload);
    this.results.show(this.view);
  }

  workload({ name, parts, nbytes, whole }) {
    const lacking = whole ? "" : " The run lacks vectors of it: these are no times of the whole.";
    const note = `${name ? `${name}: ` : ""}${parts}, ${sizeText(nbytes)} in all, one after the other: each size’s median times how often that size occurs.`;
    document.querySelector("#workload .note").textContent = note + lacking;
    document.querySelector("#workload .scroll").replaceChildren(workloadTable(this.view));
  }
}

const TITLES = { efficiency: "Scaling efficiency" };

// A word of a sentence: text as it is, an algorithm in its colour.
function word(part) {
  if (typeof part === "string") return part;
  return element("span", { class: "algorithm", style: `--series: var(${lookOf(part).variable})` }, data.algorithms[part]);
}

// Show the charts over sizes that have something to show; the last has the whole width when it would stand alone.
function fillGrid(view) {
  document.getElementById("charts").hidden = !view.right.length;
  for (const name of Object.keys(CHARTS)) document.getElementById(name).hidden = !worthDrawing(name, view);
  const narrow = [...document.querySelectorAll("#charts figure:not([hidden], .wide)")];
  for (const [at, figure] of narrow.entries()) figure.classList.toggle("alone", at % 2 === 0 && at === narrow.length - 1);
}

function reachable(plot, title) {
  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", `${title}, chart; left and right arrow keys read its values, Enter shows the samples`);
}

const page = new Page();
page.show(data.first);
