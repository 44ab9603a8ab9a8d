// Streams and relations: rates, heartbeats, what is late, what waits, and records that could not be read.

import { literal, relation } from "../api.js";
import { fill, h, state } from "../dom.js";
import { bytes, clock, instant, seconds, short, shown } from "../format.js";
import { Table } from "../table.js";
import { Attributes } from "../attributes.js";
import { bothSources } from "./overview.js";

export async function streams(main) {
  let chosen = null;
  const number = (name, label, show) => ({ name, label, number: true, value: (row) => row[name], cell: (row) => show(row[name]) });
  const attributes = new Attributes(), about = h("section", { hidden: true });
  const table = new Table([
    { name: "name", cell: (row) => h("button", { class: "name", onclick: () => choose(row) }, row.name) }, { name: "is", label: "kind" }, { name: "state", value: (row) => row.error && row.state, cell: (row) => row.error && state(row.state) }, { name: "connector" },
    number("rows_per_second", "rows/s", short), number("rows", "rows read", short), number("late", "late", short), number("malformed", "malformed", short),
    { name: "heartbeat", value: (row) => row.heartbeat }, number("lag", "lag", seconds), number("backlog_splits", "splits waiting", short),
    number("backlog_bytes", "bytes waiting", bytes), number("retained_bytes", "retained", bytes), { name: "retained_from", label: "retained from" },
  ], { key: (row) => row.name, sorted: "name", label: "streams and relations", isList: true });
  const letters = new Table(["source", "reason", "record", "origin", "line", "tick"].map((name) => ({ name, text: true })), { label: "dead letters" }), none = h("p", { class: "quiet" }, "none");
  fill(main, h("h1", {}, "Streams and relations"), h("section", {}, table.element), about,
    h("section", {}, h("h2", {}, "Records that could not be read, or came late"), none, letters.element));

  async function choose(row) {
    chosen = row.name;
    const columns = await relation("columns", { where: `object = ${literal(row.name)}` });
    about.hidden = false;
    fill(about, h("h2", {}, row.name), row.error && h("p", { class: "error" }, row.error), h("dl", {}, columns.map((one) => [h("dt", {}, one.name), h("dd", {}, one.type)]),
      ["slack", "idle_timeout", "retain", "rate_limit", "on_error"].filter((name) => row[name] !== null && row[name] !== undefined)
        .map((name) => [h("dt", {}, name.replace("_", " ")), h("dd", {}, shown(row[name]))]),
      h("dt", {}, "its rows are counted since"), h("dd", {}, row.counted_since === null || row.counted_since === undefined ? "it was declared" : clock(instant(row.counted_since)))), attributes.element);
    await attributes.of(row.id);
  }

  return async () => {
    const [rows, dead] = await Promise.all([bothSources(), relation("dead_letters")]);
    table.show(rows);
    letters.show(dead);
    letters.element.hidden = !dead.length;
    none.hidden = !!dead.length;
    if (chosen && !rows.some((one) => one.name === chosen)) about.hidden = true;
  };
}
