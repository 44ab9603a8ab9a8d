// Statements: completion, errors where they are, what a query would cost and how it could start before it is registered,
// answers as tables, and the rows of a SUBSCRIBE as they come. Beside them the catalog.

import { once, request } from "../api.js";
import { Catalog } from "../catalog.js";
import { candidates } from "../completion.js";
import { errorBox, fill, h, messageBox, notice, state } from "../dom.js";
import { Editor } from "../editor.js";
import { Following } from "../following.js";
import { bytes, firstWord, keep, kept, short } from "../format.js";
import { allows, needs } from "../roles.js";
import { columnsOf, Table } from "../table.js";

const draft = "penstock.draft", past = "penstock.selects", pause = 400, remembered = 30;
const reading = new Set(["SELECT", "WITH", "SHOW", "DESCRIBE", "EXPLAIN", "SUBSCRIBE", "VALUES", "ISTREAM", "DSTREAM", "RSTREAM", "("]);

export async function editor(main) {
  let due = null, checks = 0, running = null;
  const earlier = JSON.parse(kept(past) ?? "[]");
  const verdict = h("div", { "aria-live": "polite" }), answer = h("div", { "aria-live": "polite" });
  const field = new Editor({ value: kept(draft) ?? earlier[0] ?? "SELECT name, state, rows FROM penstock.queries",
    changed: (text) => { later(); keep(draft, text); showButtons(); }, submitted: () => run(), candidates: (before, whole) => candidates(before, whole, catalog.known) });
  const catalog = new Catalog((text) => field.insert(text));
  const go = h("button", { class: "first", onclick: () => run() }, "Execute"), stop = h("button", { onclick: () => running?.abort() }, "Cancel");
  const list = h("select", { "aria-label": "what was executed before", onchange: () => { if (list.value) field.replace(list.value); } });
  const listed = () => fill(list, h("option", { value: "" }, "earlier statements"), earlier.map((one) => h("option", { value: one }, one.slice(0, 120))));
  listed();
  fill(main, h("h1", {}, "Editor"), h("div", { class: "room" }, h("section", {}, catalog.element),
    h("div", {}, h("section", {}, field.element, h("div", { class: "row" }, go, stop, list,
      h("span", { class: "quiet" }, allows("control") ? "Ctrl+Enter; Ctrl+Space completes" : "your token may read: SELECT, SUBSCRIBE, SHOW, EXPLAIN"))),
    answer, h("section", {}, h("h2", {}, "Verdict"), verdict))));

  const isRead = () => reading.has(firstWord(field.value));

  function showButtons() {
    const refused = isRead() ? {} : needs("control");
    go.disabled = !!running || !!refused.disabled;
    go.title = refused.title ?? "";
    stop.disabled = !running;
  }

  function later() {
    clearTimeout(due);
    due = setTimeout(check, pause);
  }

  async function check() {
    const text = field.value, number = (checks += 1);
    if (!text.trim()) { fill(verdict, h("p", { class: "quiet" }, "write a statement, such as CREATE QUERY")); return; }
    try {
      const reply = await request("POST", "/v1/statements", { sql: text, dry: true });
      if (number !== checks) return;
      field.mark([]);
      fill(verdict, reply.warnings.map((one) => messageBox("warning", one)), reply.statements.map(statement));
    } catch (error) {
      if (number !== checks) return;
      field.mark(error.errors ?? [error]);
      fill(verdict, errorBox(error));
    }
  }

  async function run() {
    // As it is: errors have their places in it.
    const text = field.value;
    if (!text.trim() || go.disabled) return;
    if (firstWord(text) === "SUBSCRIBE") { follow(text.trim()); return; }
    const aborting = new AbortController(), began = performance.now();
    running = aborting;
    showButtons();
    try {
      const reply = await request("POST", "/v1/statements", { sql: text }, { ...once(), signal: aborting.signal });
      remember(text.trim());
      field.mark(reply.statements.filter((one) => one.error).map((one) => one.error));
      const done = reply.statements.filter((one) => !one.columns && !one.text && !one.error);
      if (done.length) notice(done.map((one) => `${one.kind} ${one.state}`).join(", "));
      fill(answer, reply.warnings?.map((one) => h("section", {}, messageBox("warning", one))), reply.statements.filter((one) => one.columns || one.text || one.error).map((one) => answered(one, performance.now() - began)));
      if (!isRead()) await catalog.refresh(true);
    } catch (error) {
      field.mark(error.errors ?? [error]);
      fill(answer, h("section", {}, error.name === "AbortError" ? h("p", {}, "cancelled") : errorBox(error)));
    } finally {
      running = null;
      showButtons();
    }
  }

  function follow(text) {
    const following = new Following(text.replace(/;\s*$/, ""), () => { running = null; showButtons(); });
    running = { abort: () => following.close() };
    showButtons();
    remember(text);
    fill(answer, following.element);
  }

  // Commands may contain secrets, so the browser keeps none.
  function remember(text) {
    if (!isRead()) return;
    earlier.splice(0, earlier.length, text, ...earlier.filter((one) => one !== text).slice(0, remembered - 1));
    keep(past, JSON.stringify(earlier));
    listed();
  }

  showButtons();
  later();
  field.area.focus({ preventScroll: true });
  return Object.assign(() => catalog.refresh(), { close: () => running?.abort() });
}

/** Return the answer of a statement. took: milliseconds. */
function answered(one, took) {
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

/** Return the result of the check of a statement. */
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
