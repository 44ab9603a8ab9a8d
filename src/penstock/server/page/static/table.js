// Tables whose rows stay where they are while their values change.

import { h, say } from "./dom.js";
import { isNumber, shown } from "./format.js";

const longest = 1000;
// What is a stop in a list, and milliseconds after which letters begin another name.
const stops = "tr > td:first-child > a, tr > td:first-child > button", pause = 1000;

/** A table of objects.
 *
 * columns: [{name, label, title, number, value(row), cell(row)}]; key(row): what distinguishes rows; sorted: the name of the column by
 * which it is ordered at first, with a minus for descending; most: rows that are shown; isList: the first cells are links or
 * buttons, which are one stop of the keyboard together: arrows, Home, End, page keys and the letters of a name go between them.
 */
export class Table {
  constructor(columns, { key = (row, i) => i, sorted = "", most = 1000, label = "", isList = false } = {}) {
    Object.assign(this, { columns, key, most, isList, rows: [], lines: new Map(), typed: "", typedAt: 0 });
    this.order = sorted.replace(/^-/, "");
    this.descending = sorted.startsWith("-");
    this.body = h("tbody");
    this.more = h("p", { class: "quiet", hidden: !isList }, "reading");
    this.heads = columns.map((column) => h("th", { scope: "col", class: column.number ? "number" : "" },
      h("button", { type: "button", title: column.title, onclick: () => this.sort(column.name) }, column.label ?? column.name)));
    this.cue = h("p", { class: "cue quiet", hidden: true }, "wider than its place: it scrolls sideways");
    this.element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label || "table", onscroll: () => this.fit() }, this.cue,
      h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body), this.more);
    new ResizeObserver(() => this.fit()).observe(this.element);
    this.mark();
    if (!isList) return;
    this.body.addEventListener("keydown", (event) => { if (this.gone(event)) event.preventDefault(); });
    this.body.addEventListener("focusin", (event) => { if (event.target.matches(stops)) this.stop(event.target); });
  }

  sort(name) {
    this.descending = this.order === name ? !this.descending : false;
    this.order = name;
    this.mark();
    this.show(this.rows, this.count);
  }

  // Say where there is more of it than can be seen.
  fit() {
    const { scrollWidth, clientWidth, scrollLeft } = this.element, isWide = scrollWidth > clientWidth + 1;
    this.cue.hidden = !isWide;
    this.element.classList.toggle("wide", isWide);
    this.element.classList.toggle("moved", scrollLeft > 1);
    this.element.classList.toggle("end", scrollLeft + clientWidth >= scrollWidth - 1);
  }

  mark() {
    this.columns.forEach((column, i) => this.heads[i].setAttribute("aria-sort",
      column.name !== this.order ? "none" : this.descending ? "descending" : "ascending"));
  }

  /** count: how many rows there are, if these are not all. */
  show(rows, count = rows.length) {
    this.rows = rows;
    this.count = count;
    const column = this.columns.find((one) => one.name === this.order);
    const ordered = column ? [...rows].sort((a, b) => compare(valueOf(column, a), valueOf(column, b), column.number) * (this.descending ? -1 : 1)) : rows;
    const seen = new Map();
    let place = this.body.firstChild;
    ordered.slice(0, this.most).forEach((row, i) => {
      let key = this.key(row, i);
      while (seen.has(key)) key += "\u0000";
      const line = this.lines.get(key) ?? this.line();
      seen.set(key, line);
      this.columns.forEach((one, at) => this.cell(line.children[at], one, row));
      if (line === place) place = place.nextSibling;
      else this.body.insertBefore(line, place);
    });
    for (const [key, line] of this.lines) if (seen.get(key) !== line) line.remove();
    this.lines = seen;
    if (this.isList) this.stop(this.body.querySelector(`:is(${stops})[tabindex="0"]`) ?? this.body.querySelector(stops));
    if (this.columns.length > 2) requestAnimationFrame(() => this.fit());
    this.more.hidden = count <= seen.size;
    say(this.more, `${(count - seen.size).toLocaleString("en")} further rows are not shown`);
  }

  /** Make one of the first cells the only stop among them. */
  stop(chosen) {
    for (const one of this.body.querySelectorAll(stops)) {
      const index = one === chosen ? "0" : "-1";
      if (one.getAttribute("tabindex") !== index) one.setAttribute("tabindex", index);
    }
  }

  /** Go from one row to another by a key; return whether it was such a key. */
  gone(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !event.target.matches(stops)) return false;
    const all = [...this.body.querySelectorAll(stops)], at = all.indexOf(event.target), last = all.length - 1;
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - 10, PageDown: at + 10, Home: 0, End: last }[event.key] ?? this.named(event, all, at);
    if (to === null) return false;
    all[Math.max(0, Math.min(last, to))].focus();
    return true;
  }

  // The place of the next row whose name begins with the letters that were typed without a pause; null where the key is none.
  named(event, all, at) {
    if ([...event.key].length !== 1 || (event.key === " " && !this.typed)) return null;
    this.typed = (event.timeStamp - this.typedAt < pause ? this.typed : "") + event.key.toLowerCase();
    this.typedAt = event.timeStamp;
    // One letter again and again goes through all names that begin with it.
    const isOne = [...this.typed].every((letter) => letter === this.typed[0]), word = isOne ? this.typed[0] : this.typed;
    for (let step = isOne ? 1 : 0; step <= all.length; step += 1) {
      const place = (at + step) % all.length;
      if (all[place].textContent.toLowerCase().startsWith(word)) return place;
    }
    return at;
  }

  line() {
    return h("tr", {}, this.columns.map(() => h("td")));
  }

  cell(cell, column, row) {
    if (column.cell) {
      const node = column.cell(row);
      const text = typeof node === "string" ? node : node?.outerHTML ?? "";
      if (cell.dataset.shown === text) return;
      cell.dataset.shown = text;
      cell.replaceChildren(node ?? "");
      cell.className = column.number ? "number" : "";
      return;
    }
    const value = valueOf(column, row);
    cell.className = value === null || value === undefined ? (column.number ? "null number" : "null") : column.number ? "number" : column.text ? "text" : "";
    const text = shown(value);
    if (text.length <= longest) { delete cell.dataset.shown; say(cell, text); return; }
    if (cell.dataset.shown === text) return;
    cell.dataset.shown = text;
    cell.replaceChildren(`${text.slice(0, longest)}… `, h("button", { type: "button", onclick: () => cell.replaceChildren(text) }, `all ${text.length.toLocaleString("en")} characters`));
  }
}

const valueOf = (column, row) => (column.value ? column.value(row) : row[column.name]);

function compare(a, b, isNumber) {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  if (isNumber) {
    // What no double holds comes as a text. NaN is above all numbers, as it is for ORDER BY.
    const [x, y] = [Number(a), Number(b)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    if (x !== y) return x < y ? -1 : 1;
  }
  if (typeof a === "object" || typeof b === "object") return shown(a).localeCompare(shown(b));
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Return the columns of a table for the columns of an answer. */
export const columnsOf = (described) => described.map((one) => ({ name: one.name, number: isNumber(one.type), text: !isNumber(one.type) }));
