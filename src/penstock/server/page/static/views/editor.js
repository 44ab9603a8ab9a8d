// Statements to write: errors where they are, what a query would cost and how it could start, before it is registered.

import { execute, once, request } from "../api.js";
import { errorBox, fill, h, messageBox, notice, state } from "../dom.js";
import { Editor } from "../editor.js";
import { bytes, short } from "../format.js";
import { allows, needs } from "../roles.js";
import { columnsOf, Table } from "../table.js";

const draft = "penstock.draft", pause = 400;

export async function editor(main) {
  let due = null, asked = 0;
  const verdict = h("div", { "aria-live": "polite" }), answer = h("div");
  const field = new Editor({ value: localStorage.getItem(draft) ?? "", changed: (text) => { localStorage.setItem(draft, text); later(); }, submitted: () => run() });
  const button = h("button", { class: "first", onclick: () => run(), ...needs("control") }, "Execute");
  fill(main, h("h1", {}, "Editor"), h("section", {}, field.element,
    h("div", { class: "row" }, button, h("span", { class: "quiet" }, allows("control") ? "Ctrl+Enter" : "your token may not change anything; the console answers SELECT"))), h("section", {}, h("h2", {}, "Verdict"), verdict), answer);

  function later() {
    clearTimeout(due);
    due = setTimeout(check, pause);
  }

  async function check() {
    const text = field.value, number = (asked += 1);
    if (!text.trim()) { fill(verdict, h("p", { class: "quiet" }, "write a statement, such as CREATE QUERY")); return; }
    try {
      const reply = await request("POST", "/v1/statements", { sql: text, dry: true });
      if (number !== asked) return;
      field.mark([]);
      fill(verdict, reply.warnings.map((one) => messageBox("warning", one)), reply.statements.map(statement));
    } catch (error) {
      if (number !== asked) return;
      field.mark(error.errors ?? [error]);
      fill(verdict, errorBox(error));
    }
  }

  async function run() {
    const text = field.value;
    if (!text.trim() || !allows("control")) return;
    button.disabled = true;
    try {
      const reply = await execute(text, once());
      notice(reply.statements.map((one) => `${one.kind} ${one.state}`).join(", "));
      fill(answer, reply.statements.filter((one) => one.text || one.rows).map(shownAnswer));
    } catch (error) {
      field.mark(error.errors ?? [error]);
      fill(answer, h("section", {}, errorBox(error)));
    } finally { button.disabled = false; }
  }

  if (field.value) later(); else check();
  field.area.focus();
  return null;
}

function shownAnswer(one) {
  if (one.text) return h("section", {}, h("h2", {}, one.kind), h("pre", {}, one.text));
  const table = new Table(columnsOf(one.columns), { label: one.kind });
  table.show(one.rows);
  return h("section", {}, h("h2", {}, one.kind), table.element);
}

/** Return what a check says of a statement. */
function statement(one) {
  const check = one.check;
  const head = h("div", { class: "fine" }, h("b", {}, one.kind), " ", state(one.state));
  if (!check) return head;
  const sizes = Object.entries(check.state ?? {}).filter(([, value]) => typeof value !== "object" || value === null);
  return h("div", {}, head,
    h("dl", {}, h("dt", {}, "query"), h("dd", {}, check.query), h("dt", {}, "rows a second that it can process"), h("dd", {}, short(check.rows_per_second)),
      sizes.map(([key, value]) => [h("dt", {}, key.replaceAll("_", " ")), h("dd", {}, key.includes("bytes") ? bytes(value) : String(value))])),
    h("h2", {}, "How it can start"),
    h("dl", {}, check.starts.map((start) => [h("dt", {}, start.start), h("dd", {}, start.possible ? reads(start) : start.obstacles.join("; "))])),
    h("details", {}, h("summary", {}, "Plan"), h("pre", {}, check.plan)));
}

function reads(start) {
  const read = start.reads.map((one) => `reads ${one.source} from ${one.from}, ${bytes(one.bytes)}`).join("; ");
  return [`possible${read ? `: ${read}` : ""}`, start.warm_after ? `, full after ${start.warm_after}` : "", start.awaits ? `, with ${start.awaits}` : ""].join("");
}
