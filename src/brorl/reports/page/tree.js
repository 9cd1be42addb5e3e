// The exploration tree: ribbons as wide as their rollouts, as dark as their success.
const SVG = "http://www.w3.org/2000/svg";
const trees = [];
let scale = "branch";

function svg(name, attributes = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function share(tree, i) {
  return tree.counts[i] ? tree.correct[i] / tree.counts[i] : 0;
}
function percent(part) {
  return `${(100 * part).toFixed(part > 0 && (part < 0.1 || part > 0.9) && part < 1 ? 1 : 0)} %`;
}
function mark(tree, i) {
  return { correct: "✓", wrong: "✗", rest: "…", truncated: "✂", no_answer: "∅" }[tree.outcomes[i]] || "?";
}
function flat(text) {
  const line = text.replaceAll("\n", "⏎");
  return line.trim() ? line : line.replaceAll(" ", "␣");
}

class Tree {
  constructor(host, data, number) {
    this.data = data;
    this.number = number;
    this.picked = 0;
    this.zoom = { k: 1, x: 0, y: 0 };
    this.children = data.parents.map(() => []);
    this.level = data.parents.map(() => 0);
    data.parents.forEach((parent, i) => {
      if (parent < 0) return;
      this.children[parent].push(i);
      this.level[i] = this.level[parent] + 1;
    });
    const rate = share(data, 0);
    this.svg = svg("svg", { tabindex: 0, role: "group", "aria-roledescription": "exploration tree", "aria-label":
      `${data.label}: ${data.rollouts} rollouts, ${data.correct[0]} right, ${data.distinct} distinct responses. Arrow keys walk the branches.` });
    const hatch = svg("pattern", { id: `hatch-${number}`, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    hatch.append(svg("rect", { width: 4, height: 4, style: "fill: var(--panel)" }), svg("rect", { width: 2, height: 4, style: "fill: var(--wrong-edge)" }));
    const definitions = svg("defs");
    definitions.append(hatch);
    this.ribbons = svg("g");
    this.labels = svg("g", { "aria-hidden": "true" });
    this.svg.append(definitions, this.ribbons, this.labels);
    host.append(element("article", { className: "tree" },
      element("header", {},
        element("b", { textContent: data.label }),
        element("p", { textContent: `${data.rollouts.toLocaleString("en")} rollouts · ${percent(rate)} right (${data.correct[0].toLocaleString("en")}) · ${data.distinct.toLocaleString("en")} distinct responses · ${data.nodes.toLocaleString("en")} nodes for ${data.tokens.toLocaleString("en")} tokens` }),
        element("p", { className: "asked", textContent: data.prompt.trim() + (data.answer ? `   → ${data.answer}` : "") })),
      this.svg));
    this.paths = data.parents.map((_, i) => this.ribbon(i));
    this.edges = data.parents.map((_, i) => this.rim(i));
    this.caps = data.parents.map((_, i) => this.cap(i));
    this.listen();
    this.layout();
  }

  ribbon(i) {
    const part = share(this.data, i);
    const made = svg("path", { class: "ribbon", "data-branch": i, style:
      `fill: color-mix(in oklab, var(--right) ${(100 * part).toFixed(1)}%, var(--wrong))` });
    this.ribbons.append(made);
    return made;
  }
  // The long sides in a darker tone: pale ribbons stay visible on a pale page, hairs stay visible at all.
  rim(i) {
    const made = svg("path", { class: "edge", style: `stroke: color-mix(in oklab, var(--right) ${(100 * share(this.data, i)).toFixed(1)}%, var(--wrong-edge))` });
    this.ribbons.append(made);
    return made;
  }
  cap(i) {
    const outcome = this.data.outcomes[i];
    if (!outcome || outcome === "rest") return null;
    const made = svg("rect", { class: "end", "data-branch": i, style: outcome === "correct" ? "fill: var(--right)" : `fill: url(#hatch-${this.number})` });
    this.ribbons.append(made);
    return made;
  }

  // Places: x by branch (columns as wide as their text needs) or by token; y is given, in rollouts.
  layout() {
    const { data } = this;
    this.width = this.svg.clientWidth || 500;
    this.height = this.svg.clientHeight || 500;
    const room = this.width - 14 - (this.width < 480 ? 110 : 165);
    this.unit = (this.height - 28) / data.height;
    this.start = new Float64Array(data.parents.length);
    this.stop = new Float64Array(data.parents.length);
    const ends = scale === "token" ? this.byToken(room) : this.byBranch(room);
    data.parents.forEach((parent, i) => { [this.start[i], this.stop[i]] = ends(i); });
    this.slots = data.centres.map((centre, i) => centre - data.counts[i] / 2);
    this.edge = new Float64Array(data.parents.length);
    for (let i = 0; i < data.parents.length; i++) {
      let slot = data.centres[i] - data.counts[i] / 2;
      for (const child of this.children[i]) { this.edge[child] = slot; slot += data.counts[child]; }
    }
    data.parents.forEach((parent, i) => {
      const [outline, sides] = this.outlines(i);
      this.paths[i].setAttribute("d", outline);
      this.edges[i].setAttribute("d", sides);
      this.edges[i].style.strokeWidth = Math.min(0.9, Math.max(0.3, 0.35 * data.counts[i] * this.unit));
      const cap = this.caps[i];
      if (!cap) return;
      const tall = Math.max(data.counts[i] * this.unit, 1.2);
      cap.setAttribute("x", this.stop[i]);
      cap.setAttribute("y", this.y(data.centres[i]) - tall / 2);
      cap.setAttribute("width", 5);
      cap.setAttribute("height", tall);
    });
    this.move();
  }
  byToken(room) {
    const { data } = this;
    const longest = Math.max(1, ...data.depths.map((depth, i) => depth + data.lengths[i]));
    const x = (tokens) => 26 + (room - 26) * tokens / longest;
    return (i) => (i ? [Math.min(x(data.depths[i]) + 22, x(data.depths[i] + data.lengths[i])), x(data.depths[i] + data.lengths[i])] : [14, 26]);
  }
  byBranch(room) {
    const { data } = this;
    const levels = Math.max(...this.level);
    const wanted = new Array(levels + 1).fill(0);
    data.parents.forEach((_, i) => {
      if (i === 0 || data.counts[i] < 0.02 * data.counts[0] || !this.children[i].length) return;
      wanted[this.level[i]] = Math.max(wanted[this.level[i]], (Math.min(flat(data.texts[i]).length, 22) + 5) * 7.1 + 6);
    });
    const link = Math.min(34, Math.max(12, room / (levels + 1) / 2));
    const whole = wanted.reduce((sum, width) => sum + width, 0) || 1;
    const space = Math.max(room - 26 - link * levels, 10);
    const factor = Math.min(space / whole, 1.6);
    const left = [14];
    const right = [26];
    for (let level = 1; level <= levels; level++) {
      left[level] = right[level - 1] + link;
      right[level] = left[level] + Math.max(wanted[level] * factor, 3);
    }
    return (i) => [left[this.level[i]], this.children[i].length || !i ? right[this.level[i]] : left[this.level[i]] + 8];
  }
  y(rollouts) {
    return 14 + rollouts * this.unit;
  }
  // Outline and long sides of a ribbon: from its slot in its parent, bent to its own place, straight to its end.
  outlines(i) {
    const { data } = this;
    const [a, b] = [this.y(this.slots[i]), this.y(this.slots[i] + data.counts[i])];
    const [x0, x1] = [this.start[i], this.stop[i]];
    if (i === 0) return [`M${x0},${a}H${x1}V${b}H${x0}Z`, `M${x0},${a}H${x1}M${x0},${b}H${x1}`];
    const from = this.stop[data.parents[i]];
    const [c, d] = [this.y(this.edge[i]), this.y(this.edge[i] + data.counts[i])];
    const bend = (from + x0) / 2;
    const upper = `M${from},${c}C${bend},${c} ${bend},${a} ${x0},${a}H${x1}`;
    return [`${upper}V${b}H${x0}C${bend},${b} ${bend},${d} ${from},${d}Z`, `${upper}M${from},${d}C${bend},${d} ${bend},${b} ${x0},${b}H${x1}`];
  }

  move() {
    const { k, x, y } = this.zoom;
    this.ribbons.setAttribute("transform", `translate(${x},${y}) scale(${Math.sqrt(k)},${k})`);
    this.write();
  }
  // Labels keep their size: the commonest first, each where it overlaps none that is there already.
  write() {
    const { data } = this;
    const { k, x, y } = this.zoom;
    const path = this.picked ? new Set(this.family(this.picked)) : null;
    const order = data.parents.map((_, i) => i).slice(1).sort((a, b) =>
      (path ? path.has(b) - path.has(a) : 0) || (data.correct[b] > 0 && data.outcomes[b] ? 1.5 : 1) * data.counts[b] - (data.correct[a] > 0 && data.outcomes[a] ? 1.5 : 1) * data.counts[a]);
    const taken = [];
    const made = [];
    for (const i of order) {
      const middle = this.y(data.centres[i]) * k + y;
      if (middle < 2 || middle > this.height - 2) continue;
      const label = data.outcomes[i] ? this.leafLabel(i, k, x, middle) : this.innerLabel(i, k, x, middle);
      if (!label || taken.some((box) => label.box[0] < box[1] && box[0] < label.box[1] && label.box[2] < box[3] && box[2] < label.box[3])) continue;
      taken.push(label.box);
      if (path?.has(i)) label.text.classList.add("on");
      made.push(label.text);
      if (made.length > 160) break;
    }
    this.labels.replaceChildren(...made);
  }
  leafLabel(i, k, x, middle) {
    const { data } = this;
    const left = (this.stop[i] + 5) * Math.sqrt(k) + x + 6;
    const count = data.counts[i].toLocaleString("en");
    const words = data.outcomes[i] === "rest" ? `${data.folded[i]} more` : flat(data.texts[i]) || "(ends)";
    const space = Math.floor((this.width - left - 4) / 7) - count.length - 4;
    if (space < 1 || left < 0) return null;
    const text = svg("text", { class: "label", x: left, y: middle + 4 });
    const number = svg("tspan", { class: "n" });
    number.textContent = `${mark(data, i)} ${count} `;
    text.append(number, words.length > space ? `${words.slice(0, Math.max(space - 1, 1))}…` : words);
    return { text, box: [left - 8, left + 7.1 * (Math.min(words.length, space) + count.length + 3), middle - 6.5, middle + 6.5] };
  }
  innerLabel(i, k, x, middle) {
    const { data } = this;
    const wide = Math.sqrt(k);
    const left = Math.max(this.start[i] * wide + x, 2);
    const space = Math.floor((this.stop[i] * wide + x - left) / 7.1);
    const words = flat(data.texts[i]);
    if (data.counts[i] * this.unit * k < 13 || space < Math.min(words.length, 3)) return null;
    const text = svg("text", { class: `label in ${share(data, i) > 0.45 ? "on-dark" : "on-light"}`, x: left + 3, y: middle + 4 });
    text.append(words.length > space ? `${words.slice(0, Math.max(space - 1, 1))}…` : words);
    const count = data.counts[i].toLocaleString("en");
    if (words.length + count.length + 1 <= space) {
      const number = svg("tspan", { class: "of" });
      number.textContent = ` ${count}`;
      text.append(number);
    }
    return { text, box: [left, left + 7.1 * Math.min(words.length, space) + 4, middle - 6.5, middle + 6.5] };
  }

  family(i) {
    const found = [];
    for (let branch = i; branch >= 0; branch = this.data.parents[branch]) found.push(branch);
    const below = [i];
    while (below.length) {
      const branch = below.pop();
      if (branch !== i) found.push(branch);
      below.push(...this.children[branch]);
    }
    return found;
  }
  pick(i) {
    this.picked = i;
    for (const other of trees) if (other !== this && other.picked) { other.picked = 0; other.paint(); }
    this.paint();
    describe(this, i);
  }
  paint() {
    const on = new Set(this.picked ? this.family(this.picked) : []);
    this.svg.classList.toggle("chosen", on.size > 0);
    this.paths.forEach((path, i) => {
      for (const part of [path, this.edges[i], this.caps[i]]) part?.classList.toggle("on", on.has(i));
      this.edges[i].classList.toggle("picked", this.picked > 0 && i === this.picked);
    });
    this.write();
  }
  // Zoom about a point of the drawing, within sensible limits; across the branches more than along them, where the
  // text is that needs the room.
  zoomBy(factor, px = this.width / 2, py = this.height / 2) {
    const k = Math.min(Math.max(this.zoom.k * factor, 1), 60);
    const ratio = k / this.zoom.k;
    this.zoom = this.bounded({ k, x: px - (px - this.zoom.x) * Math.sqrt(ratio), y: py - (py - this.zoom.y) * ratio });
    this.move();
  }
  bounded({ k, x, y }) {
    return { k, x: Math.min(0, Math.max(x, this.width * (1 - Math.sqrt(k)))), y: Math.min(0, Math.max(y, this.height * (1 - k))) };
  }
  reset() {
    this.zoom = { k: 1, x: 0, y: 0 };
    this.move();
  }
  reveal(i) {
    const at = this.y(this.data.centres[i]) * this.zoom.k + this.zoom.y;
    if (at < 20 || at > this.height - 20) {
      this.zoom = this.bounded({ ...this.zoom, y: this.zoom.y + this.height / 2 - at });
      this.move();
    }
  }

  listen() {
    const held = new Map();
    let dragged = 0;
    const at = (event) => { const box = this.svg.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    this.svg.addEventListener("pointerdown", (event) => {
      held.set(event.pointerId, at(event));
      dragged = 0;
      if (event.pointerType === "mouse" || this.zoom.k > 1) this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!held.has(event.pointerId)) return;
      const [x, y] = at(event);
      const [px, py] = held.get(event.pointerId);
      const others = [...held].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      dragged += Math.abs(x - px) + Math.abs(y - py);
      if (others.length) {
        const [ox, oy] = others[0];
        this.zoomBy(Math.hypot(x - ox, y - oy) / Math.max(Math.hypot(px - ox, py - oy), 1), (x + ox) / 2, (y + oy) / 2);
      } else if (this.zoom.k > 1) {
        this.svg.classList.add("moving");
        this.zoom = this.bounded({ ...this.zoom, x: this.zoom.x + x - px, y: this.zoom.y + y - py });
        this.move();
      }
      held.set(event.pointerId, [x, y]);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      this.svg.addEventListener(name, (event) => { held.delete(event.pointerId); this.svg.classList.remove("moving"); });
    }
    this.svg.addEventListener("click", (event) => {
      if (dragged > 6) return;
      const [x, y] = at(event);
      this.pick(this.nearest(x, y));
    });
    this.svg.addEventListener("dblclick", (event) => this.zoomBy(2.5, ...at(event)));
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 250), ...at(event));
    }, { passive: false });
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }
  // The branch under a point; hairs are thin, so the nearest within 8 pixels counts.
  nearest(px, py) {
    const { k, x, y } = this.zoom;
    let best = 0;
    let least = 8;
    this.data.parents.forEach((parent, i) => {
      if (parent < 0) return;
      const wide = Math.sqrt(k);
      const [left, right] = [(this.stop[parent] + this.start[i]) / 2 * wide + x, this.stop[i] * wide + x + (this.children[i].length ? 0 : 160)];
      if (px < left || px > right) return;
      const away = Math.max(Math.abs(this.y(this.data.centres[i]) * k + y - py) - this.data.counts[i] * this.unit * k / 2, 0);
      if (away < least) { least = away; best = i; }
    });
    return best;
  }
  key(event) {
    const i = this.picked;
    const siblings = i ? this.children[this.data.parents[i]] : this.children[0];
    const place = siblings.indexOf(i);
    const step = {
      ArrowRight: () => this.children[i][0], ArrowLeft: () => this.data.parents[i],
      ArrowDown: () => siblings[Math.min(place + 1, siblings.length - 1)], ArrowUp: () => siblings[Math.max(place - 1, 0)],
      Home: () => this.children[0][0], Escape: () => 0,
    }[event.key];
    if (step) {
      const next = step();
      event.preventDefault();
      if (next !== undefined && next >= 0) { this.pick(next); this.reveal(next); }
    } else if (event.key === "+" || event.key === "=") this.zoomBy(1.6);
    else if (event.key === "-") this.zoomBy(1 / 1.6);
    else if (event.key === "0") this.reset();
  }
}

function describe(tree, i) {
  const { data } = tree;
  const place = byId("branch");
  if (!i) { place.replaceChildren(); return; }
  const path = [];
  for (let branch = i; branch > 0; branch = data.parents[branch]) path.unshift(branch);
  const before = path.slice(0, -1).map((branch) => data.texts[branch]).join("");
  const next = tree.children[i];
  const outcome = data.outcomes[i] === "rest" ? `${data.folded[i]} more distinct responses, folded` : data.outcomes[i] ? `ends here: ${data.outcomes[i].replace("_", " ")}` : `${next.length} ways on`;
  place.replaceChildren(element("div", { className: "card" },
    element("p", { textContent: `${data.label}: ${data.counts[i].toLocaleString("en")} of ${data.rollouts.toLocaleString("en")} rollouts take this branch, ${percent(share(data, i))} of them right; ${outcome}.` }),
    element("pre", {}, element("span", { className: "was", textContent: before }), element("mark", { textContent: data.texts[i] || "(ends here)" }))));
}
function showPair(number) {
  const pair = DATA.pairs[number];
  const host = byId("trees");
  trees.length = 0;
  host.replaceChildren();
  byId("branch").replaceChildren();
  host.classList.toggle("one", !(pair.left && pair.right));
  for (const data of [pair.left, pair.right]) if (data) trees.push(new Tree(host, data, trees.length));
}
if (byId("pair")) {
  DATA.pairs.forEach((pair, i) => byId("pair").append(element("option", { value: i, textContent: pair.title })));
  byId("pair").addEventListener("change", (event) => showPair(Number(event.target.value)));
  byId("in").addEventListener("click", () => trees.forEach((tree) => tree.zoomBy(1.6)));
  byId("out").addEventListener("click", () => trees.forEach((tree) => tree.zoomBy(1 / 1.6)));
  byId("fit").addEventListener("click", () => trees.forEach((tree) => { tree.reset(); tree.pick(0); }));
  for (const button of document.querySelectorAll("[data-scale]")) {
    button.addEventListener("click", () => {
      scale = button.dataset.scale;
      for (const other of document.querySelectorAll("[data-scale]")) other.setAttribute("aria-pressed", other === button);
      trees.forEach((tree) => tree.layout());
    });
  }
  showPair(0);
}
