// The table of rollouts: a page of rows at a time, every text set as text.
const PAGE = 50;
const OUTCOMES = { correct: "✓ correct", wrong: "✗ wrong", partial: "◐ partial", no_answer: "∅ no answer", truncated: "✂ cut", unscorable: "? unscorable", error: "! error" };
const view = { page: 0, sort: 3, down: true, rows: [] };

function headings() {
  const { table } = DATA;
  return ["from", "prompt", "response", "count", "outcome", "reward", ...table.parts];
}
function matches() {
  const { table } = DATA;
  const words = byId("find").value.toLowerCase();
  const source = byId("source").value;
  const outcome = byId("outcome").value;
  view.rows = table.rows.filter((row) =>
    (source === "" || row[0] === Number(source)) && (outcome === "" || row[4] === outcome) &&
    (!words || row[2].toLowerCase().includes(words) || table.prompts[row[1]][0].toLowerCase().includes(words)));
  const value = (row) => (view.sort === 1 ? table.prompts[row[1]][0] : row[view.sort]) ?? -Infinity;
  view.rows.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (view.down ? -1 : 1));
  view.page = 0;
  show();
}
function cell(label, className, ...content) {
  const made = element("td", { className }, ...content);
  made.dataset.label = label;
  return made;
}
function tableRow(row) {
  const { table } = DATA;
  const [prompt, answer] = table.prompts[row[1]];
  const names = headings();
  const number = (value) => (value === null ? "–" : value.toLocaleString("en", { maximumFractionDigits: 3 }));
  return element("tr", {},
    cell(names[0], "", table.sources[row[0]]),
    cell(names[1], "asked", element("span", { textContent: prompt.trim() + (answer ? `\n→ ${answer}` : "") })),
    cell(names[2], "", element("div", { className: "response", textContent: row[2] || "(empty)" })),
    cell(names[3], "n", number(row[3])),
    cell(names[4], row[4] === "correct" ? "verdict-correct" : "verdict-wrong", OUTCOMES[row[4]] || row[4]),
    ...row.slice(5).map((value, i) => cell(names[5 + i], "n", number(value))));
}
function show() {
  const pages = Math.max(Math.ceil(view.rows.length / PAGE), 1);
  const rollouts = view.rows.reduce((sum, row) => sum + row[3], 0);
  byId("found").textContent = `${view.rows.length.toLocaleString("en")} distinct responses, ${rollouts.toLocaleString("en")} rollouts`;
  byId("page").textContent = `page ${view.page + 1} of ${pages}`;
  byId("before").disabled = view.page === 0;
  byId("after").disabled = view.page + 1 >= pages;
  byId("table").tBodies[0].replaceChildren(...view.rows.slice(view.page * PAGE, (view.page + 1) * PAGE).map(tableRow));
  [...byId("table").tHead.rows[0].cells].forEach((head, i) => head.setAttribute("aria-sort", i !== view.sort ? "none" : view.down ? "descending" : "ascending"));
}
if (byId("table")) {
  const row = element("tr");
  headings().forEach((name, i) => {
    const button = element("button", { type: "button", textContent: name });
    button.addEventListener("click", () => { view.down = view.sort === i ? !view.down : i > 2; view.sort = i; matches(); });
    row.append(element("th", { scope: "col" }, button));
  });
  byId("table").tHead.append(row);
  DATA.table.sources.forEach((name, i) => byId("source").append(element("option", { value: i, textContent: name })));
  for (const name of new Set(DATA.table.rows.map((each) => each[4]))) byId("outcome").append(element("option", { value: name, textContent: OUTCOMES[name] || name }));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", matches);
  byId("before").addEventListener("click", () => { view.page -= 1; show(); });
  byId("after").addEventListener("click", () => { view.page += 1; show(); });
  matches();
}
later(drawNext);
