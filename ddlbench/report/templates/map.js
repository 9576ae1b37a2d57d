// Who wins where: a table of sizes and rank counts, coloured by the winner.
const MAP_ROWS = 40; // sizes in the map before a reader asks for all

function familyOf(index) {
  return data.families.find((family) => family.members.includes(index));
}

class WinnerMap {
  // `pick` is called with the setting of a column that a reader chose.
  constructor(pick) {
    Object.assign(this, { pick, limit: MAP_ROWS, section: document.getElementById("map") });
  }

  show(index) {
    this.index = index;
    const { places, spread } = familyOf(index);
    const columns = places.map((place) => new Map(data.settings[place].best.map((win) => [win[0], win])));
    const sizes = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
    this.section.hidden = !spread || !sizes.length;
    if (this.section.hidden) return;
    const shown = thinned(sizes, this.limit);
    const rows = shown.map((nbytes) =>
      element("tr", {}, element("th", { scope: "row", class: "number" }, sizeText(nbytes)), ...columns.map((column) => mapCell(column.get(nbytes)))),
    );
    const head = element("tr", {}, element("th", { scope: "col", class: "number" }, "Size"), ...this.heads());
    this.section.querySelector(".scroll").replaceChildren(
      element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)),
    );
    this.offerMore(shown.length, sizes.length);
  }

  heads() {
    const { places, heads } = familyOf(this.index);
    return places.map((place, at) => {
      const [ranks, more] = heads[at];
      const button = element("button", { type: "button", "aria-pressed": String(place === this.index) }, ranks);
      if (more) button.append(element("span", { class: "under" }, more));
      button.onclick = () => {
        this.pick(place);
        this.section.querySelectorAll("thead button")[at].focus();
      };
      return element("th", { scope: "col" }, button);
    });
  }

  offerMore(shown, all) {
    const place = this.section.querySelector(".more");
    place.replaceChildren();
    if (shown === all) return;
    const button = element("button", { type: "button" }, `Show all ${grouped(all)} sizes`);
    button.onclick = () => {
      this.limit = Infinity;
      this.show(this.index);
    };
    place.append(`${grouped(shown)} of ${grouped(all)} sizes, evenly chosen. `, button);
  }
}

// At most so many of a list, evenly chosen, the first and the last among them.
function thinned(list, most) {
  if (list.length <= most) return list;
  return Array.from({ length: most }, (_, at) => list[Math.round((at * (list.length - 1)) / (most - 1))]);
}

function mapCell(win) {
  if (!win) return element("td", { class: "none" }, "–");
  const [, winner, next, lead, outcome, rivals] = win;
  const name = data.algorithms[winner];
  if (outcome === "clear") {
    const depth = Math.min(1, Math.log(lead) / Math.log(3));
    const style = `--series: var(${lookOf(winner).variable}); --depth: ${(0.14 + 0.26 * depth).toFixed(2)}`;
    return element("td", { class: "won", style, title: `next: ${data.algorithms[next]}` }, sides(name, ratioText(lead)));
  }
  const mark = outcome === "alone" ? "" : "≈";
  const made = element("td", { class: "open" }, sides(name, mark));
  if (mark) made.title = why(outcome, rivals);
  return made;
}

function sides(left, right) {
  return element("div", { class: "sides" }, element("span", {}, left), element("span", {}, right));
}
