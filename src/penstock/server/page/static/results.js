// The results of a query as they come: the content of a relation, or the newest rows of a stream; as a table and as a chart.

import { get, parsed, queryPath } from "./api.js";
import { Chart } from "./chart.js";
import { errorBox, fill, h, say } from "./dom.js";
import { onWake } from "./live.js";
import { instant, isClock, isNumber, short, shown } from "./format.js";
import { columnsOf, Table } from "./table.js";

const kept = 500, points = 2000, series = 10, pause = 250, shownRows = 1000;

export class Results {
  constructor(query) {
    this.query = query;
    // Before its own columns an answer has the instant and, of a relation, the kind of the change.
    this.columns = query.columns.slice(query.kind === "relation" ? 2 : 1);
    this.isRelation = query.kind === "relation";
    this.content = new Map();
    this.recent = [];
    this.drawn = [];
    this.heartbeat = null;
    this.count = 0;
    this.about = h("p", { class: "quiet", role: "status" }, "waiting for rows");
    this.trouble = h("div");
    const columns = columnsOf(this.columns);
    this.table = new Table(this.isRelation ? columns : [{ name: "ts" }, ...columns],
      { key: (row) => row[mark], label: `results of ${query.name}` });
    const numbers = this.columns.filter((one) => isNumber(one.type)).map((one) => one.name);
    const others = this.columns.map((one) => one.name);
    this.value = h("select", { "aria-label": "value of the chart", onchange: () => this.redraw() }, numbers.map((one) => h("option", { value: one }, one)));
    this.by = h("select", { "aria-label": "a line for each", onchange: () => this.redraw() }, h("option", { value: "" }, "one line"), others.map((one) => h("option", { value: one }, `by ${one}`)));
    const first = this.columns.find((one) => !isNumber(one.type) && one.type.toUpperCase().startsWith("STRING"));
    if (first) this.by.value = first.name;
    if (numbers.length) this.value.value = numbers.find((one) => !/(^|_)id$/i.test(one)) ?? numbers[0];
    this.picture = h("div");
    // A browser has six connections to a server for all of its pages: a hidden page must not hold one.
    this.turned = () => (document.hidden ? this.disconnect() : this.source ?? this.open(this.cursor));
    document.addEventListener("visibilitychange", this.turned);
    this.asleep = onWake(() => this.source && this.open(this.cursor));
    this.element = h("div", {}, this.about, this.trouble, this.table.element,
      numbers.length ? h("div", {}, h("div", { class: "row" }, h("h2", {}, "Chart"), this.value, this.by), this.picture) : null);
    this.open("");
  }

  open(cursor) {
    this.disconnect();
    if (this.isClosed || document.hidden) return;
    const isPlain = !this.isWhole && !cursor, snapshot = this.isRelation && !this.isWhole;
    const from = cursor ? `&from=${encodeURIComponent(cursor)}` : snapshot ? "&snapshot=true" : "&from=beginning";
    const path = queryPath(this.query.name, "/results", `format=sse${this.isWhole ? "" : "&progress=true"}${from}`);
    this.source = new EventSource(path);
    this.source.addEventListener("rows", (event) => this.take(parsed(event.data), event.lastEventId));
    this.source.addEventListener("error", (event) => {
      if (event.data) {
        this.disconnect();
        this.failed(parsed(event.data), isPlain);
      } else if (this.source?.readyState === EventSource.CLOSED) {
        this.refused(path, isPlain);
      }
    });
  }

  // Refused, or the server was away for longer than the browser tries.
  async refused(path, isFirst) {
    this.disconnect();
    let error = {};
    try { await get(`${path}&until=now`); } catch (refusal) { error = refusal; }
    if (this.isClosed) return;
    if (error.code) this.failed(error, isFirst);
    else this.again = setTimeout(() => this.open(this.cursor), 3000);
  }

  failed(error, isFirst) {
    if (error.code === "P0711" && isFirst) {
      // A server without Spark keeps no content beside the rows: the content follows from all rows.
      this.isWhole = true;
      this.open("");
    } else fill(this.trouble, errorBox(error));
  }

  close() {
    this.isClosed = true;
    this.asleep();
    document.removeEventListener("visibilitychange", this.turned);
    this.disconnect();
  }

  disconnect() {
    clearTimeout(this.again);
    this.source?.close();
    this.source = null;
  }

  take(rows, cursor) {
    if (cursor) this.cursor = cursor;
    fill(this.trouble);
    for (const row of rows) {
      if (row.op === "p") { this.heartbeat = row.ts; continue; }
      this.count += 1;
      if (this.isRelation) this.change(row);
      else {
        row[mark] = this.count;
        this.recent.push(row);
      }
      this.drawn.push(row);
    }
    if (this.recent.length > kept) this.recent.splice(0, this.recent.length - kept);
    if (this.drawn.length > points) this.drawn.splice(0, this.drawn.length - points);
    this.due ??= setTimeout(() => this.show(), pause);
  }

  // A relation is a bag: a row counts as often as it was added and not taken away.
  change(row) {
    const key = shown(this.columns.map((one) => row[one.name]));
    const held = this.content.get(key) ?? { row, times: 0 };
    held.times += row.op === "-" ? -1 : 1;
    if (held.times === 0) this.content.delete(key);
    else this.content.set(key, held);
  }

  show() {
    this.due = null;
    if (document.hidden) return;
    let rows = [...this.recent].reverse();
    if (this.isRelation) {
      rows = [];
      for (const [key, held] of this.content) for (let i = 0; i < Math.min(held.times, shownRows); i += 1) rows.push({ ...held.row, [mark]: `${key}${i}` });
    }
    const count = this.isRelation ? [...this.content.values()].reduce((sum, held) => sum + held.times, 0) : rows.length;
    this.table.show(rows, count);
    const final = this.heartbeat === null ? "" : `, final up to ${shown(this.heartbeat)}`;
    say(this.about, this.isRelation ? `${count.toLocaleString("en")} rows now, ${this.count.toLocaleString("en")} changes seen${final}`
      : `${this.count.toLocaleString("en")} rows seen, the newest ${rows.length} are shown${final}`);
    this.draw();
  }

  redraw() {
    this.chart = null;
    this.draw();
  }

  draw() {
    if (!this.value.value) return;
    const by = this.by.value, names = [], at = new Map();
    for (const row of this.drawn) {
      const name = by ? shown(row[by]) : this.value.value;
      if (!names.includes(name)) { if (names.length >= series) continue; names.push(name); }
      const x = instant(row.ts);
      if (x === null) continue;
      if (!at.has(x)) at.set(x, new Map());
      // What is taken away at an instant and not replaced ends the line.
      const values = at.get(x);
      if (row.op !== "-") values.set(name, drawable(row[this.value.value]));
      else if (!values.has(name)) values.set(name, null);
    }
    const xs = [...at.keys()].sort((a, b) => a - b);
    const data = [xs, ...names.map((name) => {
      let held = null;
      // An answer holds until it changes.
      return xs.map((x) => { const found = at.get(x).get(name); if (found !== undefined) held = found; return this.isRelation ? held : found ?? null; });
    })];
    const kind = names.join("\u0000");
    if (!this.chart || this.kind !== kind) {
      this.kind = kind;
      this.chart = new Chart(names.map((label) => ({ label: label.length > 60 ? `${label.slice(0, 59)}…` : label || "(empty)", show: short, isHeld: this.isRelation })), { clock: isClock(this.drawn[0]?.ts), height: 260, across: isClock(this.drawn[0]?.ts) ? "ts, UTC" : "ts", up: this.value.value, label: `chart of ${this.value.value}` });
      fill(this.picture, this.chart.element);
    }
    if (!this.isRelation) this.chart.draw(data.map((one, i) => (i && data.length > 2 ? joined(one) : one)));
    else this.chart.draw(data);
  }
}

// NaN, Infinity and numbers near the end of their range have no place in a picture.
function drawable(value) {
  const number = value === null || value === undefined ? NaN : Number(value);
  return Math.abs(number) < 1e300 ? number : null;
}

// Several lines over the instants of all: where one has no value it goes on to its next.
const joined = (values) => values.map((one) => (one === null ? undefined : one));
const mark = Symbol("row");
