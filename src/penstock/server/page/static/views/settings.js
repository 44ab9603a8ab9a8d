// The settings of the job; those that can be changed while it runs are forms.

import { execute, literal, once, relation } from "../api.js";
import { ask, errorBox, fill, h, notice, prose } from "../dom.js";
import { needs } from "../roles.js";
import { Table } from "../table.js";

export async function settings(main) {
  let rows = [];
  const trouble = h("div");
  const table = new Table([{ name: "name" }, { name: "value", text: true },
    { name: "change", cell: (row) => (row.settable === false ? "" : h("button", { onclick: () => set(row), ...needs("admin") }, "Set")) },
    { name: "help", value: (row) => row.help ?? "", cell: (row) => prose(row.help) }], { key: (row) => row.name, sorted: "name", label: "settings" });
  const show = () => table.show(rows.filter((row) => `${row.name} ${row.help ?? ""}`.toLowerCase().includes(sought.value.toLowerCase())));
  const sought = h("input", { type: "search", class: "grow", placeholder: "name or help", "aria-label": "find", oninput: show });
  fill(main, h("h1", {}, "Settings"), trouble, h("section", {}, h("div", { class: "row" }, sought), table.element));

  async function refresh() { rows = await relation("settings"); show(); }

  async function set(row) {
    const answer = await ask(row.name, { text: prose(row.help), fields: [{ name: "value", label: "new value", value: row.value ?? "" }], yes: "Set" });
    if (!answer) return;
    try {
      await execute(`ALTER SYSTEM SET ${row.name} = ${literal(answer.value)}`, once());
      fill(trouble);
      notice(`${row.name} is ${answer.value}`);
      await refresh();
    } catch (error) { fill(trouble, errorBox(error)); }
  }
  return refresh;
}
