// SELECT over what runs: the answer as a table, and as a file.

import { request } from "../api.js";
import { errorBox, fill, h } from "../dom.js";
import { Editor } from "../editor.js";
import { keep, kept } from "../format.js";
import { columnsOf, Table } from "../table.js";

const past = "penstock.selects";

export async function console_(main) {
  let running = null;
  const earlier = JSON.parse(kept(past) ?? "[]");
  const field = new Editor({ value: earlier[0] ?? "SELECT name, state, rows FROM penstock.queries", label: "SELECT", submitted: () => run() });
  const answer = h("div", { "aria-live": "polite" });
  const list = h("select", { "aria-label": "earlier statements", onchange: () => { if (list.value) field.replace(list.value); } });
  const stop = h("button", { disabled: true, onclick: () => running?.abort() }, "Cancel");
  const go = h("button", { class: "first", onclick: () => run() }, "Select");
  const remembered = () => fill(list, h("option", { value: "" }, "earlier statements"), earlier.map((one) => h("option", { value: one }, one.slice(0, 120))));
  remembered();
  fill(main, h("h1", {}, "Console"), h("section", {}, field.element, h("div", { class: "row" }, go, stop, list)), answer);

  async function run() {
    const sql = field.value.trim();
    if (!sql || running) return;
    running = new AbortController();
    [go.disabled, stop.disabled] = [true, false];
    const began = performance.now();
    try {
      const reply = await request("POST", "/v1/statements", { sql }, { signal: running.signal });
      earlier.splice(0, earlier.length, sql, ...earlier.filter((one) => one !== sql).slice(0, 29));
      keep(past, JSON.stringify(earlier));
      remembered();
      fill(answer, reply.statements.map((one) => shown(one, performance.now() - began)));
    } catch (error) {
      field.mark(error.errors ?? [error]);
      fill(answer, h("section", {}, error.name === "AbortError" ? h("p", {}, "cancelled") : errorBox(error)));
    } finally {
      running = null;
      [go.disabled, stop.disabled] = [false, true];
    }
  }
  return null;
}

function shown(one, took) {
  if (!one.columns) return h("section", {}, h("h2", {}, `${one.kind} ${one.state}`), one.error && errorBox(one.error), one.text && h("pre", {}, one.text));
  const table = new Table(columnsOf(one.columns), { label: "answer" });
  table.show(one.rows);
  const facts = [`${one.rows.length.toLocaleString("en")} rows in ${Math.round(took)} ms`, one.instant && `as of ${one.instant}`,
    one.staleness !== undefined && `${one.staleness} s old`, ...Object.entries(one.since ?? {}).map(([name, at]) => `${name} from ${at} on`),
    ...(one.notices ?? []).map((notice) => notice.message)];
  return h("section", {}, h("div", { class: "row" }, h("span", { class: "grow quiet" }, facts.filter(Boolean).join(", ")),
    h("button", { onclick: () => save(one) }, "CSV")), table.element);
}

function save(one) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "object" && typeof value !== "bigint" ? JSON.stringify(value) : String(value);
    return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [one.columns.map((column) => cell(column.name)), ...one.rows.map((row) => one.columns.map((column) => cell(row[column.name])))];
  const link = h("a", { href: URL.createObjectURL(new Blob([lines.map((line) => line.join(",")).join("\r\n") + "\r\n"], { type: "text/csv" })), download: "answer.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}
