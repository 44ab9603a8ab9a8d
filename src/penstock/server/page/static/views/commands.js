// What was commanded, by whom, and what became of it.

import { get } from "../api.js";
import { fill, h, state } from "../dom.js";
import { sqlText } from "../editor.js";
import { Table } from "../table.js";

const page = 1000;

export async function commands(main) {
  const known = new Map();
  const table = new Table([{ name: "number", number: true }, { name: "at" }, { name: "who" }, { name: "state", cell: (row) => state(row.state) },
    { name: "version", number: true }, { name: "sql", label: "statement", cell: (row) => sqlText(row.sql) },
    { name: "error", text: true, value: (row) => (row.error ? `${row.error.code}: ${row.error.message}` : "") }],
  { key: (row) => row.number, sorted: "-number", most: 300, label: "commands" });
  fill(main, h("h1", {}, "Commands"), h("section", {}, table.element));

  return async () => {
    // Commands in hand change; those that are done do not.
    const open = [...known.values()].filter((one) => !["DONE", "FAILED", "RUNNING"].includes(one.state)).map((one) => one.number);
    let after = Math.min(...open, ...(known.size ? [Math.max(...known.keys()) + 1] : [1])) - 1;
    for (;;) {
      const found = (await get(`/v1/commands?after=${after}&limit=${page}`)).commands;
      for (const one of found) known.set(one.number, one);
      if (found.length < page) break;
      after = found.at(-1).number;
    }
    table.show([...known.values()]);
  };
}
