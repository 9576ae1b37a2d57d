// Putting it together: what is shown, and when it is drawn again.
class Page {
  constructor() {
    this.hidden = new Set();
    this.cursor = new Cursor();
    this.results = new Results(document.querySelector("#all .scroll"), document.querySelector("#all .more"));
    this.picker = document.getElementById("picker");
    if (this.picker) this.picker.onchange = () => this.show(Number(this.picker.value));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    addEventListener("resize", () => innerWidth !== this.width && this.redraw()); // a phone's bars change only the height
    addEventListener("beforeprint", () => this.redraw());
    addEventListener("afterprint", () => this.redraw());
  }

  show(index) {
    this.view = new View(data.settings[index]);
    this.say();
    this.legend();
    this.redraw();
    this.tables();
  }

  say() {
    const { label, headline, lede } = this.view.setting;
    document.getElementById("setting").textContent = label;
    document.getElementById("headline").replaceChildren(...headline.map(word));
    document.getElementById("lede").replaceChildren(...lede.map((sentence) => element("p", {}, ...sentence.map(word))));
  }

  legend() {
    const keys = [...this.view.algorithms, ...(this.view.hasBound ? [BOUND] : [])];
    const place = document.getElementById("legend");
    place.replaceChildren(...keys.map((algorithm) => this.toggle(algorithm)));
    if (keys.length > 2) place.append(this.all(keys));
  }

  toggle(algorithm) {
    const name = algorithm === BOUND ? "lower bound" : data.algorithms[algorithm];
    const button = element("button", { type: "button", "aria-pressed": String(!this.hidden.has(algorithm)) }, keyOf(algorithm), name);
    button.onclick = () => {
      if (!this.hidden.delete(algorithm)) this.hidden.add(algorithm);
      button.setAttribute("aria-pressed", String(!this.hidden.has(algorithm)));
      this.redraw();
    };
    return button;
  }

  all(keys) {
    const button = element("button", { type: "button", class: "quiet" }, "All or none");
    button.onclick = () => {
      const none = keys.some((key) => this.hidden.has(key));
      this.hidden = new Set(none ? [] : keys);
      this.legend();
      this.redraw();
      document.querySelector(".legend .quiet").focus();
    };
    return button;
  }

  redraw() {
    this.width = innerWidth;
    const drawn = Object.keys(CHARTS).map((name) => draw(name, this.view, this.hidden));
    this.cursor.follow(drawn.filter(Boolean));
    document.getElementById("hint").hidden = !drawn.some(Boolean);
    for (const { plot, name } of drawn.filter(Boolean)) reachable(plot, name);
  }

  tables() {
    const { workload, best } = this.view.setting;
    document.getElementById("best").hidden = !best.length;
    document.querySelector("#best .scroll").replaceChildren(bestTable(this.view));
    document.getElementById("workload").hidden = !workload;
    if (workload) this.workload(workload);
    this.results.show(this.view);
  }

  workload({ parts, nbytes }) {
    const name = data.workload ? `${data.workload}: ` : "";
    const note = `${name}${parts}, ${sizeText(nbytes)} in all, one after the other: each size’s median times how often that size occurs.`;
    document.querySelector("#workload .note").textContent = note;
    document.querySelector("#workload .scroll").replaceChildren(workloadTable(this.view));
  }
}

// A word of a sentence: text as it is, an algorithm in its colour.
function word(part) {
  if (typeof part === "string") return part;
  return element("span", { class: "algorithm", style: `--series: var(${lookOf(part).variable})` }, data.algorithms[part]);
}

function reachable(plot, name) {
  const title = document.querySelector(`#${name} h3`).textContent;
  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", `${title} against size, chart; left and right arrow keys read its values`);
}

const page = new Page();
page.show(data.first);
