"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Theme: the system's, unless the reader chose; kept for this page only where storage is allowed.
const probe = element("span", { hidden: true });
document.body.append(probe);
function resolved(variable) {
  probe.style.color = variable;
  return getComputedStyle(probe).color;
}
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  recolour();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

// Charts: plotly figures whose colours are variables of this page.
const plots = [...document.querySelectorAll(".plot")];
const drawn = new Set();
let axis = "steps";
let printing = false;

function coloured(value) {
  if (typeof value === "string") return value.startsWith("var(") ? resolved(value) : value;
  if (Array.isArray(value)) return typeof value[0] === "number" && typeof value.at(-1) === "number" ? value : value.map(coloured);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v)]));
  return value;
}

function figure(place) {
  const chart = DATA.charts[place.dataset.chart];
  const small = Boolean(place.closest(".small"));
  const shown = chart.axes ? chart.data.map((trace) => ({ ...trace, x: trace.meta[axis] })) : chart.data;
  const legend = shown.some((trace) => trace.showlegend !== false && trace.name && trace.type !== "heatmap");
  const line = { gridcolor: "var(--rule)", zerolinecolor: "var(--rule)", linecolor: "var(--soft)", automargin: true, exponentformat: "e", nticks: small ? 4 : 6, fixedrange: true };
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, DejaVu Sans, sans-serif", size: small ? 10 : 11.5, color: "var(--soft)" },
    margin: { l: 8, r: 12, t: 8, b: 8 }, hovermode: "x unified", hoverlabel: { bgcolor: "var(--panel)", bordercolor: "var(--rule)", font: { color: "var(--ink)" } },
    showlegend: legend && !small, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    ...chart.layout,
    xaxis: { ...line, ...chart.layout.xaxis }, yaxis: { ...line, ...chart.layout.yaxis },
  };
  if (chart.data[0]?.type === "heatmap") base.hovermode = "closest";
  if (chart.axes) base.xaxis.title = { text: chart.axes[axis] };
  if (small) base.xaxis.title = { text: "" };
  if (small) base.yaxis.title = { text: "" };
  return [coloured(shown), coloured(base)];
}
function draw(place) {
  const [data, layout] = figure(place);
  layout.width = place.clientWidth;
  layout.height = place.clientHeight;
  drawn.add(place);
  return Plotly.react(place, data, layout, { displayModeBar: false, responsive: false });
}
function recolour() {
  drawn.forEach(draw);
}
function drawAll() {
  plots.filter((place) => !drawn.has(place)).forEach(draw);
}
const later = window.requestIdleCallback || ((work) => setTimeout(work, 1));
function drawNext() {
  const place = plots.find((candidate) => !drawn.has(candidate));
  if (place) draw(place);
  if (place) later(drawNext);
  else document.documentElement.dataset.ready = "true";
}
for (const button of document.querySelectorAll("[data-axis]")) {
  button.addEventListener("click", () => {
    axis = button.dataset.axis;
    for (const other of document.querySelectorAll("[data-axis]")) other.setAttribute("aria-pressed", other === button);
    plots.filter((place) => DATA.charts[place.dataset.chart].axes).forEach(draw);
  });
}
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { recolour(); trees.forEach((tree) => tree.layout()); }, 120);
});
matchMedia("print").addEventListener("change", () => { drawAll(); recolour(); trees.forEach((tree) => tree.layout()); });
addEventListener("beforeprint", drawAll);
