// The rows of a SUBSCRIBE statement as they come: the newest ones, in a table.

import { events } from "./api.js";
import { errorBox, fill, h, say } from "./dom.js";
import { columnsOf, Table } from "./table.js";

const most = 500, pause = 250;

export class Following {
  /** ended(): called once, when no more rows come. */
  constructor(sql, ended) {
    Object.assign(this, { sql, ended, rows: [], count: 0, cursor: null });
    this.about = h("span", { class: "grow quiet", role: "status" }, "waiting for rows");
    this.trouble = h("div");
    this.place = h("div");
    this.element = h("section", {}, h("div", { class: "row" }, this.about), this.trouble, this.place);
    // A browser has six connections to a server for all of its pages: a hidden page must not hold one.
    this.turned = () => (document.hidden ? this.reading?.abort() : this.read());
    document.addEventListener("visibilitychange", this.turned);
    this.read();
  }

  async read() {
    if (this.isClosed || document.hidden) return;
    this.reading?.abort();
    const reading = new AbortController();
    this.reading = reading;
    try {
      const headers = this.cursor === null ? {} : { "Last-Event-ID": this.cursor };
      for await (const one of events("POST", "/v1/statements", { sql: this.sql }, { headers, signal: reading.signal })) this.take(one);
      this.close("it has ended");
    } catch (error) {
      if (this.reading !== reading || this.isClosed || document.hidden) return;
      if (error.name !== "AbortError") {
        fill(this.trouble, errorBox(error));
        this.close("it has ended");
      }
    }
  }

  take({ id, rows }) {
    if (id) this.cursor = id;
    for (const row of rows) {
      if (row.op === "p") { this.heartbeat = row.ts; continue; }
      this.count += 1;
      row[number] = this.count;
      this.rows.push(row);
    }
    if (this.rows.length > most) this.rows.splice(0, this.rows.length - most);
    this.due ??= setTimeout(() => this.show(), pause);
  }

  show(end = "") {
    this.due = null;
    if (this.rows.length && !this.table) {
      const row = this.rows[0];
      this.table = new Table(columnsOf(Object.keys(row).map((name) => ({ name, type: ["number", "bigint"].includes(typeof row[name]) ? "DOUBLE" : "STRING" }))), { label: "rows of the subscription", key: (one) => one[number], most });
      fill(this.place, this.table.element);
    }
    this.table?.show([...this.rows].reverse());
    const shown = this.count > this.rows.length ? `, the newest ${this.rows.length} are shown` : "";
    const final = this.heartbeat === undefined ? "" : `, final up to ${this.heartbeat}`;
    say(this.about, `${this.count.toLocaleString("en")} rows so far${shown}${final}${end ? `; ${end}` : ""}`);
  }

  close(why = "cancelled") {
    if (this.isClosed) return;
    this.isClosed = true;
    this.reading?.abort();
    document.removeEventListener("visibilitychange", this.turned);
    clearTimeout(this.due);
    this.show(why);
    this.ended();
  }
}

const number = Symbol("number");
