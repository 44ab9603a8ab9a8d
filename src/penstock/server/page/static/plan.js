// A plan as a picture that moves: drag, wheel or keys; nodes can be chosen.

import { drawn, literal, relation } from "./api.js";
import { colours } from "./chart.js";
import { fill, h, say } from "./dom.js";
import { bytes, short } from "./format.js";

const step = 1.25;
//: Pixels of the picture: the width of a letter at the most, and between a text and the edge of its box.
const letter = 7.3, inside = 8;
//: What an edge is marked with.
const patterns = [["MON", "rows are only added"], ["WKS", "rows end in the order in which they came"], ["WK", "rows end when it is known at their arrival, in any order"], ["STR", "rows may end at any time"]];
//: How small the picture may be at first, and how large; queries whose colours are explained below it, or stand at a node.
const least = 0.65, largest = 1.1, listed = 12, marks = 8;

export class Plan {
  /** chosen(id): called with the id of a node, null for none; tapped(from, to): with the keys of the operators of an edge. */
  constructor(chosen = () => {}, tapped = () => {}) {
    this.chosen = chosen;
    this.tapped = tapped;
    this.place = h("div", { class: "plan", tabindex: "0", role: "application", "aria-label": "plan; arrows move, plus and minus zoom, 0 shows all; Tab goes to an operator, where arrows go to the next one",
      onkeydown: (event) => this.pressed(event), onscroll: () => this.place.scrollTo(0, 0) },
    h("div", { class: "zoom" },
      h("button", { type: "button", "aria-label": "nearer", onclick: () => this.zoom(1 / step) }, "+"),
      h("button", { type: "button", "aria-label": "farther", onclick: () => this.zoom(step) }, "−"),
      h("button", { type: "button", onclick: () => this.whole() }, "all")));
    this.legend = h("p", { class: "legend quiet", hidden: true });
    this.patterns = h("p", { class: "legend quiet", hidden: true });
    this.element = h("div", {}, this.place, this.legend, this.patterns);
    new ResizeObserver(() => { if (this.svg) this.look(this.view); }).observe(this.place);
    this.svg = null;
    this.shape = "";
    this.version = null;
    this.nodes = new Map();
    this.edges = [];
    this.choice = null;
  }

  /** Fetch the picture of the plan and show it if it is another one. version: of the plan that runs, where it is known. */
  async load(path, version) {
    if (version !== undefined && version === this.version) return;
    const picture = await drawn(path);
    if (picture === null) return;
    this.version = version;
    this.show(picture);
  }

  show(text) {
    // Figures differ each time, and are not what the picture is.
    const shape = text.replace(/<text[^>]*font-style[^>]*>[^<]*<\/text>|<title>[^<]*<\/title>/g, "");
    if (shape === this.shape) return;
    this.shape = shape;
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    if (parsed.nodeName !== "svg") return;
    const focused = document.activeElement?.dataset?.node;
    this.svg?.remove();
    this.svg = document.importNode(parsed, true);
    // What is inside can be reached, so it is no image.
    this.svg.setAttribute("role", "group");
    this.full = this.svg.getAttribute("viewBox").split(" ").map(Number);
    this.svg.setAttribute("width", this.full[2]);
    this.svg.setAttribute("height", this.full[3]);
    this.place.append(this.svg);
    this.nodes = new Map();
    for (const node of this.svg.querySelectorAll("[data-node]")) {
      const id = node.dataset.node;
      this.nodes.set(id, { group: node, box: node.querySelector("rect"), figure: null });
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", (node.querySelector("title")?.textContent ?? id).split("\n")[0]);
      node.addEventListener("click", (event) => { if (!this.moved) this.choose(id); event.stopPropagation(); });
      node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { this.choose(id); event.preventDefault(); } });
    }
    this.edges = [...this.svg.querySelectorAll("[data-from]")];
    this.labels = new Map(this.edges.map((edge) => [edge, edge.nextElementSibling?.nodeName === "text" ? edge.nextElementSibling : null]));
    this.parts = [...this.nodes.values()].map((one) => one.group).concat(this.edges.map((edge) => this.touchable(edge)));
    this.parts.forEach((part, i) => {
      part.setAttribute("tabindex", i ? "-1" : "0");
      part.addEventListener("focus", () => this.reached(part));
    });
    this.drag();
    this.begin();
    // Only what the picture has is explained.
    const marks = [...this.labels.values()].map((one) => one?.querySelector("title")?.textContent ?? ""), known = patterns.filter(([name]) => marks.some((one) => new RegExp(`^pattern: ${name}$`, "m").test(one)));
    this.patterns.hidden = !known.length;
    fill(this.patterns, known.length > 0 && "At an edge: ", known.map(([name, what], i) => [i > 0 && "; ", h("b", {}, name), ` ${what}`]));
    // Another picture of the same operators: what was chosen stays so, and the keyboard where it was.
    if (focused) this.nodes.get(focused)?.group.focus();
    if (this.choice !== null) this.choose(this.nodes.has(this.choice) ? this.choice : null);
  }

  /** Let an edge be chosen: a line is too thin for a pointer, so a broad one that is not seen lies over it. */
  touchable(edge) {
    const broad = edge.cloneNode(false), { from, to } = edge.dataset;
    const act = () => this.tapped(from.slice(from.indexOf(":") + 1), to.slice(to.indexOf(":") + 1));
    broad.setAttribute("class", "touch");
    broad.setAttribute("tabindex", "0");
    broad.setAttribute("role", "button");
    const name = (id) => this.nodes.get(id)?.group.getAttribute("aria-label") ?? "";
    broad.setAttribute("aria-label", `rows from ${name(from)} to ${name(to)}`);
    broad.addEventListener("click", (event) => { if (!this.moved) act(); event.stopPropagation(); });
    broad.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { act(); event.preventDefault(); } });
    edge.after(broad);
    return broad;
  }

  /** One of the parts is reached by Tab, the others from there by arrows: a plan of a thousand operators is no way of two thousand keys. */
  reached(part) {
    if (!part.matches(":focus-visible")) return;
    for (const other of this.parts) if (other !== part && other.getAttribute("tabindex") === "0") other.setAttribute("tabindex", "-1");
    part.setAttribute("tabindex", "0");
    const [box, place] = [part.getBoundingClientRect(), this.place.getBoundingClientRect()], scale = this.scale();
    const off = (from, to, begin, end) => (from < begin || to > end ? ((from + to) / 2 - (begin + end) / 2) * scale : 0);
    const [dx, dy] = [off(box.left, box.right, place.left, place.right), off(box.top, box.bottom, place.top, place.bottom)];
    if (dx || dy) this.look([this.view[0] + dx, this.view[1] + dy, this.view[2], this.view[3]]);
  }

  /** Go from one part to another by a key; return whether it was such a key. */
  gone(key, part) {
    const at = this.parts.indexOf(part), to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: this.parts.length - 1 }[key];
    if (at < 0 || to === undefined) return false;
    this.parts[Math.max(0, Math.min(this.parts.length - 1, to))].focus({ preventScroll: true });
    return true;
  }

  /** Return the keys of the operators in the picture. */
  get keys() { return [...this.nodes.keys()].map((id) => id.slice(id.indexOf(":") + 1)); }

  choose(id) {
    this.choice = id;
    for (const [key, node] of this.nodes) node.group.classList.toggle("chosen", key === id);
    this.chosen(id);
  }

  /** Write figures into the nodes. figures: id -> {text, shared, busy}. Only what has changed is written. */
  figures(figures) {
    for (const [id, node] of this.nodes) {
      const newer = figures.get(id);
      if (!newer && !node.figure) continue;
      if (!node.figure) {
        // The picture has what was measured when it was drawn; newer figures are written in its place.
        const [first, ...others] = node.group.querySelectorAll("text[font-style]");
        if (!first) continue;
        for (const other of others) other.remove();
        node.figure = first;
        node.figure.setAttribute("class", "figure");
      }
      this.written(node, newer?.text ?? "");
      node.group.classList.toggle("filling", !!newer?.filling);
      this.coloured(node, newer?.queries ?? []);
      if (node.isShared !== !!newer?.shared) { node.isShared = !!newer?.shared; node.group.classList.toggle("shared", node.isShared); }
    }
    for (const edge of this.edges) {
      edge.classList.toggle("busy", !!figures.get(edge.dataset.from)?.busy);
      const label = this.labels.get(edge), text = figures.edges?.get(`${edge.dataset.from} ${edge.dataset.to}`);
      if (!label || text === undefined) continue;
      let line = label.querySelector("tspan");
      if (!line) {
        line = document.createElementNS(namespace, "tspan");
        line.setAttribute("x", label.getAttribute("x"));
        line.setAttribute("dy", "12");
        line.setAttribute("class", "figure");
        label.append(line);
      }
      say(line, text);
    }
    this.explain();
  }

  /** Write the figures of a node. What is longer than its box is set narrower, so that it stays inside. */
  written(node, text) {
    say(node.figure, text);
    const room = Number(node.box.getAttribute("width")) - 2 * inside;
    if (text.length * letter > room) {
      node.figure.setAttribute("textLength", room.toFixed(1));
      node.figure.setAttribute("lengthAdjust", "spacingAndGlyphs");
    } else node.figure.removeAttribute("textLength");
  }

  /** Give a node that serves several queries a mark in the colour of each. */
  coloured(node, queries) {
    const kind = queries.join("\u0000");
    if (node.kind === kind) return;
    node.kind = kind;
    node.marks?.remove();
    node.marks = null;
    if (!queries.length) return;
    node.marks = document.createElementNS(namespace, "g");
    node.marks.setAttribute("class", "marks");
    const title = document.createElementNS(namespace, "title");
    title.textContent = queries.join("\n");
    node.marks.append(title);
    queries.slice(0, marks).forEach((name, i) => {
      const mark = document.createElementNS(namespace, "rect");
      for (const [key, value] of Object.entries({ x: Number(node.box.getAttribute("x")) + 6 + 14 * i, y: Number(node.box.getAttribute("y")) - 4, width: 12, height: 8, rx: 2, class: `c${this.colour(name)}` })) mark.setAttribute(key, value);
      node.marks.append(mark);
    });
    if (queries.length > marks) {
      const more = document.createElementNS(namespace, "text");
      more.setAttribute("x", Number(node.box.getAttribute("x")) + 10 + 14 * marks);
      more.setAttribute("y", Number(node.box.getAttribute("y")) - 4);
      more.textContent = `and ${queries.length - marks} more`;
      node.marks.append(more);
    }
    node.group.append(node.marks);
  }

  /** Return the number of the colour of a query. */
  colour(name) {
    this.named ??= new Map();
    if (!this.named.has(name)) this.named.set(name, this.named.size % colours.length);
    return this.named.get(name);
  }

  /** Say below the picture which colour is which query. */
  explain() {
    const names = [...(this.named?.keys() ?? [])], kind = names.join("\u0000");
    if (this.explained === kind) return;
    this.explained = kind;
    this.legend.hidden = !names.length;
    fill(this.legend, names.slice(0, listed).map((name) => [h("a", { href: `#/query/${encodeURIComponent(name)}` }, h("i", { class: `colour c${this.colour(name)}` }), h("bdi", {}, name)), " "]),
      names.length > listed && `and ${names.length - listed} more`);
  }

  /** Show all where it can be read then, and otherwise the result and what is below it. */
  begin() {
    const [x, y, width] = this.full, fit = 1 / Math.max(this.full[2] / (this.place.clientWidth || 1), this.full[3] / (this.place.clientHeight || 1));
    if (fit >= least && fit <= largest) { this.whole(); return; }
    const by = fit > largest ? largest : 0.85, [w, h_] = [this.place.clientWidth / by, this.place.clientHeight / by];
    if (fit > largest) { this.look([x + (width - w) / 2, y + (this.full[3] - h_) / 2, w, h_]); return; }
    const top = [...this.nodes.values()][0]?.box;
    const middle = top ? Number(top.getAttribute("x")) + Number(top.getAttribute("width")) / 2 + 20 : width / 2;
    this.look([this.full[2] <= w ? x + (width - w) / 2 : middle - w / 2, y, w, h_]);
  }

  whole() {
    if (!this.svg) return;
    this.look([...this.full]);
  }

  /** Show a part of the picture. It is moved as a whole, as one that is painted: another viewBox would paint every node anew. */
  look(view) {
    this.view = view;
    const by = 1 / this.scale(), [x, y, width, height] = view;
    const left = this.place.clientWidth / 2 - (x - this.full[0] + width / 2) * by;
    const top = this.place.clientHeight / 2 - (y - this.full[1] + height / 2) * by;
    this.svg.style.transform = `translate(${left.toFixed(1)}px, ${top.toFixed(1)}px) scale(${by.toFixed(4)})`;
  }

  /** Return how many units of the picture a pixel has. */
  scale() {
    return Math.max(this.view[2] / (this.place.clientWidth || 1), this.view[3] / (this.place.clientHeight || 1));
  }

  zoom(by, at) {
    if (!this.svg) return;
    const [x, y, width, height] = this.view;
    const [px, py] = at ?? [x + width / 2, y + height / 2];
    this.look([px - (px - x) * by, py - (py - y) * by, width * by, height * by]);
  }

  pressed(event) {
    if (!this.svg) return;
    if (this.gone(event.key, event.target.closest?.("[data-node], .touch"))) { event.preventDefault(); return; }
    const [x, y, width, height] = this.view;
    const moves = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
    if (moves[event.key]) this.look([x + moves[event.key][0] * width, y + moves[event.key][1] * height, width, height]);
    else if (event.key === "+" || event.key === "=") this.zoom(1 / step);
    else if (event.key === "-") this.zoom(step);
    else if (event.key === "0") this.whole();
    else if (event.key === "Escape") this.choose(null);
    else return;
    event.preventDefault();
  }

  drag() {
    let from = null;
    const scale = () => this.scale();
    this.place.onpointerdown = (event) => { from = { x: event.clientX, y: event.clientY, view: this.view }; this.moved = false; };
    this.place.onpointermove = (event) => {
      if (!from || !(event.buttons & 1)) return;
      const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
      if (Math.abs(dx) + Math.abs(dy) > 4) this.moved = true;
      this.place.classList.toggle("moving", this.moved);
      if (this.moved) this.look([from.view[0] - dx * scale(), from.view[1] - dy * scale(), from.view[2], from.view[3]]);
    };
    this.place.onpointerup = this.place.onpointerleave = this.place.onpointercancel = () => { from = null; this.place.classList.remove("moving"); };
    this.place.onwheel = (event) => {
      // Without Ctrl the page scrolls, as it does everywhere else.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = this.place.getBoundingClientRect();
      const at = [this.view[0] + this.view[2] / 2 + (event.clientX - box.left - box.width / 2) * scale(),
        this.view[1] + this.view[3] / 2 + (event.clientY - box.top - box.height / 2) * scale()];
      this.zoom(event.deltaY > 0 ? step : 1 / step, at);
    };
  }
}

const namespace = "http://www.w3.org/2000/svg";

/** What the operators of a plan do, by the ids of the picture. Rates are those since the figures before. */
export class OperatorFigures {
  constructor() {
    this.operators = new Map();
    this.shown = new Map();
    this.passed = new Map();
    this.users = new Map();
    this.at = 0;
  }

  /** keys: of the operators; without them all. */
  async refresh(keys = null) {
    const where = (column, kind) => (keys ? `${column} IN (${keys.map((key) => literal(kind + key)).join(", ")})` : "");
    const [rows, queues] = await Promise.all([relation("operators", { where: where("key", "") }),
      relation("queues", { columns: "from_operator, to_operator, rows, count", where: where("to_operator", "operator:") })]);
    const now = Date.now(), before = this.operators;
    await this.read(rows.filter((row) => row.queries > 1));
    const passed = (now - this.at) / 1000;
    this.at = now;
    this.operators = new Map(rows.map((row) => [`0:${row.key}`, row]));
    this.shown = new Map(rows.map((row) => {
      const earlier = before.get(`0:${row.key}`);
      const rate = earlier && row.rows_out !== null ? Math.max(0, (row.rows_out - earlier.rows_out) / passed) : null;
      row.rows_per_second = rate === null ? null : Math.round(rate * 10) / 10;
      const parts = [row.mature === false && "filling", row.rows_out !== null && `${short(row.rows_out)} rows`, rate !== null && `${short(rate)}/s`, row.state_bytes && bytes(row.state_bytes),
        row.ns_per_row !== null && `${short(row.ns_per_row)} ns/row`];
      return [`0:${row.key}`, { text: parts.filter(Boolean).join(" · "), shared: row.queries > 1, busy: rate > 0, filling: row.mature === false,
        queries: row.queries > 1 ? this.users.get(row.id) ?? [] : [] }];
    }));
    this.shown.edges = this.edges(queues, passed);
  }

  // By both ends of an edge, its text: rows a second, and rows that wait; between rounds none do.
  edges(queues, seconds) {
    const sums = new Map(), id = (operator) => `0:${operator.slice(operator.indexOf(":") + 1)}`;
    for (const one of queues) {
      const edge = `${id(one.from_operator)} ${id(one.to_operator)}`, sum = sums.get(edge) ?? { count: null, rows: 0 };
      if (one.count !== null) sum.count = (sum.count ?? 0) + Number(one.count);
      sum.rows += Number(one.rows ?? 0);
      sums.set(edge, sum);
    }
    const before = this.passed;
    this.passed = sums;
    return new Map([...sums].map(([edge, sum]) => {
      const earlier = before.get(edge)?.count, rate = sum.count === null || earlier === undefined || earlier === null ? null : Math.max(0, (sum.count - earlier) / seconds);
      return [edge, [rate === null ? sum.count !== null && `${short(sum.count)} rows` : `${short(rate)}/s`, sum.rows > 0 && `${short(sum.rows)} wait`].filter(Boolean).join(", ")];
    }));
  }

  // The queries of operators that several use; they change with the plan alone.
  async read(shared) {
    const kind = shared.map((row) => `${row.id} ${row.queries}`).join("\u0000");
    if (kind === this.kind) return;
    this.kind = kind;
    this.users = new Map();
    if (!shared.length) return;
    for (const one of await relation("query_operators", { where: `operator IN (${shared.map((row) => literal(row.id)).join(", ")})` })) {
      if (!this.users.has(one.operator)) this.users.set(one.operator, []);
      this.users.get(one.operator).push(one.query);
    }
  }
}
