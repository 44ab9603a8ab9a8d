// Statements to write: errors where they are, what a query would cost and how it could start, before it is registered.

import { execute, once, request } from "../api.js";
import { errorBox, fill, h, messageBox, notice, state } from "../dom.js";
import { Editor } from "../editor.js";
import { bytes, keep, kept, short } from "../format.js";
import { allows, needs } from "../roles.js";
import { columnsOf, Table } from "../table.js";

const draft = "penstock.draft", pause = 400;

export async function editor(main) {
  let due = null, asked = 0;
  const verdict = h("div", { "aria-live": "polite" }), answer = h("div");
  const field = new Editor({ value: kept(draft) ?? "", changed: (text) => { later(); keep(draft, text); }, submitted: () => run() });
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
  const sources = Object.entries(check.state?.assumed ?? {}).filter(([, one]) => !one.known).map(([name, one]) => `${name}: ${short(one.rate)} rows a second`);
  return h("div", {}, head,
    h("dl", {}, h("dt", {}, "query"), h("dd", {}, check.query), h("dt", {}, "work, as estimated"), h("dd", {}, `${short(check.rows_per_second)} rows a second through its operators`),
      h("dt", {}, "state"), h("dd", {}, size(check.state ?? {}, sources))),
    sharing(check.sharing),
    h("h2", {}, "How it can start"),
    h("dl", {}, check.starts.map((start) => [h("dt", {}, start.start), h("dd", {}, start.possible ? reads(start) : start.obstacles.join("; "))])),
    h("details", {}, h("summary", {}, "Plan"), h("pre", {}, check.plan)));
}

// What a query will keep, and on what this estimate stands.
function size(kept, assumed) {
  const known = kept.bounded === "bounded" ? `about ${short(kept.rows)} rows, ${bytes(kept.bytes)}` : kept.bounded;
  return [known, kept.by && `by ${kept.by}`, kept.hint, assumed.length && `assumed of ${assumed.join(", ")}`].filter(Boolean).join("; ");
}

// With whom a query will share operators.
function sharing(found) {
  if (!found) return null;
  const line = (steps, word) => steps.length > 0 && [h("dt", {}, word), h("dd", {}, steps.map((one) => h("div", {}, `${one.kind} with ${one.queries.join(", ")}${one.why ? `: ${one.why}` : ""}`)))];
  const none = !found.shared.length && !found.equal.length && !found.near.length;
  return [h("h2", {}, "Shared"), none ? h("p", { class: "quiet" }, "with no other query")
    : h("dl", {}, line(found.shared, "operators"), line(found.equal, "equal, but of its own"), line(found.near, "nearly equal"))];
}

function reads(start) {
  const read = start.reads.map((one) => `reads ${one.source} from ${one.from}, ${bytes(one.bytes)}`).join("; ");
  return [`possible${read ? `: ${read}` : ""}`, start.warm_after ? `, full after ${start.warm_after}` : "", start.awaits ? `, with ${start.awaits}` : ""].join("");
}
