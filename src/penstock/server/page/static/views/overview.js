// What the system does at present: rates, phases of batches, memory and CPU by query and by synopsis, backlog, events.

import { relation } from "../api.js";
import { bars, Chart } from "../chart.js";
import { fill, h, say, state } from "../dom.js";
import { bytes, clock, instant, seconds, share, short, whole } from "../format.js";

const events = [];
const most = 300, averaged = 20, quiet = 10000;
const phases = ["read", "ingest", "exchange", "operators", "state", "sink", "spark"];
let batches = [], batchAt = 0;

/** Remember the last events; also while another room is open. */
export function remember({ batch, events: others }) {
  for (const one of others) events.unshift({ at: one.at, text: [one.event, one.number, one.query ?? one.name, one.kind, one.state].filter((part) => part !== undefined && part !== null).join(" ") });
  events.length = Math.min(events.length, 50);
  if (batch) batchAt = Date.now();
}

export async function overview(main) {
  const tiles = ["rows in a second", "rows out a second", "largest lag", "batches so far", "queries", "state"].map((label) => ({ label, value: h("b", {}, "–") }));
  const rates = new Chart([{ label: "in a second", show: short }, { label: "out a second", show: short }], { label: "rows a second", across: "when a batch ended, UTC", up: "rows a second" });
  const this_ = { drawn: null };
  const cpu = h("div"), memory = h("div"), synopses = h("div"), backlog = h("div"), log = h("div"), states = h("div", { class: "row" }), parts = h("div"), about = h("p", { class: "quiet" }), counted = h("p", { class: "quiet" });
  fill(main, h("h1", {}, "Overview"),
    h("div", { class: "tiles" }, tiles.map((one) => h("div", { class: "tile" }, one.value, h("span", {}, one.label)))), states, counted,
    h("div", { class: "columns" },
      h("section", {}, h("h2", {}, "Rows a second"), rates.element), h("section", {}, h("h2", {}, "Phases of batches"), about, parts),
      h("section", {}, h("h2", {}, "CPU by query"), cpu), h("section", {}, h("h2", {}, "State by query"), memory),
      h("section", {}, h("h2", {}, "State by synopsis"), synopses), h("section", {}, h("h2", {}, "Waiting at the sources"), backlog),
      h("section", {}, h("h2", {}, "Events"), log)));

  // After the last batch no event reports that no rows pass.
  const still = setInterval(passing, 1000);

  // The rates of the batches, and 0 from the last one on when no other has come for a while.
  function passing() {
    const at = batches.map((one) => instant(one.at)), last = at.at(-1);
    const rate = (name) => batches.map((one, i) => (i ? one[name] / Math.max(0.001, at[i] - at[i - 1]) : null)).slice(1);
    const passed = last === undefined ? 0 : batchAt ? Date.now() - batchAt : Date.now() - 1000 * last, isStill = passed > quiet;
    const [xs, rowsIn, rowsOut] = [at.slice(1), rate("rows_in"), rate("rows_out")];
    if (isStill && xs.length) for (const end of [1, Math.max(2, passed / 1000)]) { xs.push(last + end); rowsIn.push(0); rowsOut.push(0); }
    say(tiles[0].value, isStill ? "0" : short(rowsIn.at(-1)));
    say(tiles[1].value, isStill ? "0" : short(rowsOut.at(-1)));
    // Nothing is drawn anew that is the same.
    const drawn = isStill ? `${last} ${Math.round(passed / 10000)}` : `${last} ${batches.length}`;
    if (this_.drawn !== drawn) { this_.drawn = drawn; rates.draw([xs, rowsIn, rowsOut]); }
  }

  const refresh = async () => {
    const last = batches.at(-1)?.number;
    const [queries, sources, held, operators, readers, newer] = await Promise.all([relation("queries"), bothSources(), relation("synopses"), relation("operators", { columns: "id, kind, counted_since" }),
      relation("query_operators"), relation("batches", { where: last === undefined ? "" : `number >= ${last}` })]);
    // A server that was started again counts its batches from elsewhere.
    if (last !== undefined && newer[0]?.number !== last) batches = [];
    batches = [...batches.filter((one) => one.number < (newer[0]?.number ?? Infinity)), ...newer].slice(-most);
    const lags = queries.map((one) => one.lag).filter((one) => one !== null && one !== undefined).map(Number);
    const values = [lags.length ? seconds(Math.max(...lags)) : "–", batches.length ? whole(batches.at(-1).number) : "–",
      whole(queries.length), bytes(sum(held, "bytes"))];
    values.forEach((value, i) => say(tiles[i + 2].value, value));
    const since = operators.find((one) => one.counted_since)?.counted_since;
    say(counted, since ? `CPU is counted since the server started, ${clock(instant(since))}; batches since the first start` : "");
    passing();
    const counts = Object.entries(Object.groupBy?.(queries, (one) => one.state) ?? {});
    fill(states, counts.map(([word, all]) => h("a", { href: "#/queries" }, state(word), ` ${all.length}`)));
    phasesOf(parts, about);
    const link = (one) => `#/query/${encodeURIComponent(one.name)}`;
    fill(cpu, bars(queries.map((one) => ({ label: one.name, href: link(one), value: one.cpu_share ?? one.cpu_seconds, text: one.cpu_share === null ? seconds(one.cpu_seconds) : share(one.cpu_share) }))));
    fill(memory, bars(queries.map((one) => ({ label: one.name, href: link(one), value: one.state_bytes, text: bytes(one.state_bytes) }))));
    const kinds = new Map(operators.map((one) => [one.id, one.kind])), users = Map.groupBy?.(readers, (one) => one.operator) ?? new Map();
    fill(synopses, bars(held.map((one) => {
      const names = (users.get(one.operator) ?? []).map((reader) => reader.query);
      const of = names.length > 1 ? `${names[0]} and ${names.length - 1} more` : names[0] ?? one.operator;
      return { label: `${one.kind} of ${kinds.get(one.operator) ?? one.operator}, ${of}`, href: names.length ? link({ name: names[0] }) : undefined, value: one.bytes, text: bytes(one.bytes) };
    })));
    fill(backlog, bars(sources.map((one) => ({ label: one.name, href: "#/streams", value: one.backlog_bytes || one.backlog_records || one.backlog_splits,
      text: one.backlog_bytes ? bytes(one.backlog_bytes) : one.backlog_records ? `${whole(one.backlog_records)} rows` : `${whole(one.backlog_splits)} splits` }))));
    fill(log, events.length ? h("dl", {}, events.slice(0, 14).map((one) => [h("dt", {}, clock(one.at / 1000).slice(11)), h("dd", {}, one.text)])) : h("p", { class: "quiet" }, "nothing since this page was opened"));
  };
  return Object.assign(refresh, { close: () => clearInterval(still) });
}

// Where the time of the last batches goes.
function phasesOf(place, about) {
  const last = batches.slice(-averaged), whole_ = last.reduce((all, one) => all + Number(one.seconds ?? 0), 0);
  say(about, last.length ? `${seconds(whole_ / last.length)} a batch, mean of the last ${last.length}` : "no batch yet");
  fill(place, bars(phases.map((phase) => {
    const spent = last.reduce((all, one) => all + Number(one[`${phase}_seconds`] ?? 0), 0);
    // What no other phase has measured is called after Spark, which a server in process has not.
    return { label: phase === "spark" ? "the rest" : phase, value: spent, text: last.length ? `${seconds(spent / last.length)}` : "" };
  })));
}

export async function bothSources() {
  const [streams, relations] = await Promise.all([relation("streams"), relation("relations")]);
  return [...streams.map((one) => ({ ...one, is: "stream" })), ...relations.map((one) => ({ ...one, is: "relation" }))];
}

const sum = (rows, name) => rows.reduce((all, row) => all + Number(row[name] ?? 0), 0);
