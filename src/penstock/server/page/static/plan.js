// A plan as a picture that moves: drag, wheel or keys; nodes can be chosen.

import { relation } from "./api.js";
import { h, say } from "./dom.js";
import { bytes, short } from "./format.js";

const step = 1.25;

export class Plan {
  /** chosen(id): called with the id of a node, null for none; tapped(from, to): with the keys of the operators of an edge. */
  constructor(chosen = () => {}, tapped = () => {}) {
    this.chosen = chosen;
    this.tapped = tapped;
    this.place = h("div", { class: "plan", tabindex: "0", role: "application", "aria-label": "plan; arrows move, plus and minus zoom, 0 shows all",
      onkeydown: (event) => this.pressed(event) },
    h("div", { class: "zoom" },
      h("button", { type: "button", "aria-label": "nearer", onclick: () => this.zoom(1 / step) }, "+"),
      h("button", { type: "button", "aria-label": "farther", onclick: () => this.zoom(step) }, "−"),
      h("button", { type: "button", onclick: () => this.whole() }, "all")));
    this.element = this.place;
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
    const answer = await fetch(path, { credentials: "same-origin" });
    if (!answer.ok) return;
    this.version = version;
    this.show(await answer.text());
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
    this.full = this.svg.getAttribute("viewBox").split(" ").map(Number);
    this.svg.setAttribute("width", this.full[2]);
    this.svg.setAttribute("height", this.full[3]);
    this.place.append(this.svg);
    this.nodes = new Map();
    for (const node of this.svg.querySelectorAll("[data-node]")) {
      const id = node.dataset.node;
      this.nodes.set(id, { group: node, box: node.querySelector("rect"), figure: null });
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", (node.querySelector("title")?.textContent ?? id).split("\n")[0]);
      node.addEventListener("click", (event) => { if (!this.moved) this.choose(id); event.stopPropagation(); });
      node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { this.choose(id); event.preventDefault(); } });
    }
    this.edges = [...this.svg.querySelectorAll("[data-from]")];
    for (const edge of this.edges) this.touchable(edge);
    this.drag();
    this.whole();
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
      const told = figures.get(id);
      if (!told && !node.figure) continue;
      if (!node.figure) {
        // The picture has what was measured when it was drawn; newer figures are written in its place.
        const [first, ...others] = node.group.querySelectorAll("text[font-style]");
        if (!first) continue;
        for (const other of others) other.remove();
        node.figure = first;
        node.figure.setAttribute("class", "figure");
      }
      say(node.figure, told?.text ?? "");
      if (node.isShared !== !!told?.shared) { node.isShared = !!told?.shared; node.group.classList.toggle("shared", node.isShared); }
    }
    for (const edge of this.edges) edge.classList.toggle("busy", !!figures.get(edge.dataset.from)?.busy);
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
    this.place.onpointerup = this.place.onpointerleave = () => { from = null; this.place.classList.remove("moving"); };
    this.place.onwheel = (event) => {
      event.preventDefault();
      const box = this.place.getBoundingClientRect();
      const at = [this.view[0] + this.view[2] / 2 + (event.clientX - box.left - box.width / 2) * scale(),
        this.view[1] + this.view[3] / 2 + (event.clientY - box.top - box.height / 2) * scale()];
      this.zoom(event.deltaY > 0 ? step : 1 / step, at);
    };
  }
}

/** What the operators of a plan do, by the ids of the picture. Rates are those since the figures before. */
export class OperatorFigures {
  constructor() {
    this.operators = new Map();
    this.shown = new Map();
    this.at = 0;
  }

  async refresh(where = "") {
    const rows = await relation("operators", { where }), now = Date.now(), before = this.operators;
    const passed = (now - this.at) / 1000;
    this.at = now;
    this.operators = new Map(rows.map((row) => [`0:${row.key}`, row]));
    this.shown = new Map(rows.map((row) => {
      const earlier = before.get(`0:${row.key}`);
      const rate = earlier && row.rows_out !== null ? Math.max(0, (row.rows_out - earlier.rows_out) / passed) : null;
      row.rows_per_second = rate === null ? null : Math.round(rate * 10) / 10;
      const parts = [row.rows_out !== null && `${short(row.rows_out)} rows`, rate !== null && `${short(rate)}/s`, row.state_bytes && bytes(row.state_bytes),
        row.ns_per_row !== null && `${short(row.ns_per_row)} ns/row`];
      return [`0:${row.key}`, { text: parts.filter(Boolean).join(" · "), shared: row.queries > 1, busy: rate > 0 }];
    }));
  }
}
