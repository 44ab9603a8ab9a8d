// All queries, as a table.

import { relation } from "../api.js";
import { fill, h, state } from "../dom.js";
import { bytes, seconds, share, short } from "../format.js";
import { Table } from "../table.js";

const most = 160;
/** The beginning of a text, with a sign where it goes on. */
const begun = (text) => text.length > most ? `${text.slice(0, most - 2)} …` : text;

export async function queries(main) {
  let rows = [];
  const number = (name, label, show) => ({ name, label, number: true, value: (row) => row[name], cell: (row) => show(row[name]) });
  const table = new Table([
    { name: "name", cell: (row) => h("a", { class: "name", href: `#/query/${encodeURIComponent(row.name)}` }, row.name) },
    { name: "state", cell: (row) => state(row.state) }, { name: "kind" },
    number("rows_per_second", "rows/s", short), { ...number("rows", "rows", short), title: "rows of its result; the page of a query says since when they are counted" }, number("lag", "lag", seconds),
    number("state_bytes", "state", bytes), number("shared_bytes", "shared", bytes), number("cpu_share", "CPU", share),
    { name: "sink" }, { name: "text", text: true, value: (row) => begun(String(row.text ?? "").replace(/\s+/g, " ")) },
  ], { key: (row) => row.id ?? row.name, sorted: "name", label: "queries", isList: true });
  const show = () => table.show(rows.filter((row) => `${row.name} ${row.text} ${row.state}`.toLowerCase().includes(sought.value.toLowerCase())));
  const sought = h("input", { type: "search", class: "grow", placeholder: "name, text or state", "aria-label": "find", oninput: show });
  fill(main, h("h1", {}, "Queries"), h("section", {},
    h("div", { class: "row" }, sought, h("a", { href: "#/editor" }, "New query")), table.element));
  return async () => { rows = await relation("queries"); show(); };
}
