// Draws the charts of a sheet with plotly, in the colours of the page's style, anew when the scheme changes.
"use strict";

const charts = JSON.parse(document.getElementById("charts").textContent);
const plots = [...document.querySelectorAll(".plot")];
const scheme = window.matchMedia("(prefers-color-scheme: dark)");

function axis(given, ink, grid) {
  return { ...given, gridcolor: grid, zerolinecolor: ink, linecolor: grid, automargin: true };
}

function draw() {
  const style = getComputedStyle(document.documentElement);
  const [ink, grid] = ["--ink", "--grid"].map((name) => style.getPropertyValue(name).trim());
  charts.forEach((chart, at) => {
    const layout = {
      font: { family: "system-ui, sans-serif", size: 13, color: ink },
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
      margin: { l: 60, r: 10, t: 10, b: 50 },
      legend: { orientation: "v" },
      hovermode: "closest",
      xaxis: axis(chart.axes.x, ink, grid),
      yaxis: axis(chart.axes.y, ink, grid),
    };
    Plotly.react(plots[at], chart.traces, layout, { displayModeBar: false, responsive: true });
  });
}

scheme.addEventListener("change", draw);
draw();
