// What is declared, as a tree from which names are taken, and for completion.

import { get, quoted, relation } from "./api.js";
import { fill, h } from "./dom.js";
import { version } from "./live.js";

const groups = [["stream", "Streams"], ["relation", "Relations"], ["view", "Views"], ["query", "Queries"], ["control relation", "The system itself"], ["control stream", "The system itself"]];
const plain = /^[A-Za-z_][A-Za-z0-9_.]*$/;
const written = (name) => (plain.test(name) ? name : quoted(name));

export class Catalog {
  /** insert(text): called with a name that was chosen. */
  constructor(insert) {
    this.insert = insert;
    this.known = { keywords: [], functions: [], objects: [] };
    this.place = h("div", { class: "tree" });
    this.element = h("details", { class: "catalog", open: matchMedia("(min-width: 1000px)").matches }, h("summary", {}, "Catalog"), this.place);
    this.version = null;
    // Of what kinds something was there before: others are opened when they come.
    this.titles = new Set();
  }

  /** Read what is declared, if it can be something else than before. */
  async refresh(isChanged = false) {
    const now = version();
    if (!isChanged && now !== undefined && now === this.version) return;
    if (!this.known.keywords.length) Object.assign(this.known, await get("/v1/words"));
    const found = new Map();
    for (const one of await relation("columns")) {
      const key = `${one.kind} ${one.object}`;
      if (!found.has(key)) found.set(key, { name: one.object, kind: one.kind, columns: [] });
      found.get(key).columns.push({ name: one.name, type: one.type });
    }
    this.version = now;
    this.known.objects = [...found.values()];
    this.show();
  }

  show() {
    const kind = JSON.stringify(this.known.objects);
    if (this.shown === kind) return;
    this.shown = kind;
    const open = new Set([...this.place.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    const titles = [...new Set(groups.map(([, title]) => title))];
    fill(this.place, titles.map((title) => {
      const all = this.known.objects.filter((one) => groups.some(([of, its]) => its === title && of === one.kind)).sort((a, b) => (a.name < b.name ? -1 : 1));
      return all.length > 0 && this.branch(title, `${title} (${all.length})`, open.has(title) || !(this.titles.has(title) || title.startsWith("The")), all.map((one) => this.object(one, open)));
    }));
    for (const one of this.place.children) this.titles.add(one.dataset.name);
  }

  branch(name, label, isOpen, inside) {
    return h("details", { "data-name": name, open: isOpen }, h("summary", {}, label), h("div", { class: "inside" }, inside));
  }

  object(one, open) {
    const name = `${one.kind} ${one.name}`;
    return this.branch(name, h("bdi", {}, one.name), open.has(name), [
      h("button", { type: "button", title: `write ${one.name} at the cursor`, onclick: () => this.insert(written(one.name)) }, `${one.kind}, write its name`),
      one.columns.map((column) => h("button", { type: "button", title: `write ${column.name} at the cursor`, onclick: () => this.insert(written(column.name)) }, h("bdi", {}, column.name), " ", h("span", { class: "quiet" }, column.type))),
    ]);
  }
}
