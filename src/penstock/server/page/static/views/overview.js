// What the system does at present: rates, phases of batches, memory and CPU by query and by synopsis, backlog, events.

import { relation } from "../api.js";
import { bars, Chart } from "../chart.js";
import { fill, h, say, state } from "../dom.js";
import { bytes, clock, instant, seconds, share, short, whole } from "../format.js";

const events = [];
const most = 300, averaged = 20, quiet = 10000;
const phases = ["read", "ingest", "exchange", "operators", "state", "sink", "spark"];
let batches = [], told_ = 0;

/** Remember what was told; also while another room is open. */
export function remember({ batch, events: told }) {
  for (const one of told) events.unshift({ at: one.at, text: [one.event, one.number, one.query ?? one.name, one.kind, one.state].filter((part) => part !== undefined && part !== null).join(" ") });
  events.length = Math.min(events.length, 50);
  if (batch) told_ = Date.now();
}

export async function overview(main) {
  const tiles = ["rows in a second", "rows out a second", "largest lag", "batches", "queries", "state"].map((label) => ({ label, value: h("b", {}, "–") }));
  const rates = new Chart([{ label: "in a second", show: short }, { label: "out a second", show: short }], { label: "rows a second" });
  const cpu = h("div"), memory = h("div"), synopses = h("div"), backlog = h("div"), log = h("div"), states = h("div", { class: "row" }), parts = h("div"), about = h("p", { class: "quiet" });
  fill(main, h("h1", {}, "Overview"),
    h("div", { class: "tiles" }, tiles.map((one) => h("div", { class: "tile" }, one.value, h("span", {}, one.label)))), states,
    h("div", { class: "columns" },
      h("section", {}, h("h2", {}, "Rows a second"), rates.element), h("section", {}, h("h2", {}, "Phases of batches"), about, parts),
      h("section", {}, h("h2", {}, "CPU by query"), cpu), h("section", {}, h("h2", {}, "State by query"), memory),
      h("section", {}, h("h2", {}, "State by synopsis"), synopses), h("section", {}, h("h2", {}, "Waiting at the sources"), backlog),
      h("section", {}, h("h2", {}, "Events"), log)));

  // After the last batch nothing comes that would say that nothing passes.
  const still = setInterval(() => { if (told_ && Date.now() - told_ > quiet) for (const tile of tiles.slice(0, 2)) say(tile.value, "0"); }, 1000);

  const refresh = async () => {
    const last = batches.at(-1)?.number;
    const [queries, sources, held, operators, readers, newer] = await Promise.all([relation("queries"), bothSources(), relation("synopses"), relation("operators", { columns: "id, kind" }),
      relation("query_operators"), relation("batches", { where: last === undefined ? "" : `number >= ${last}` })]);
    // A server that was started again counts its batches from elsewhere.
    if (last !== undefined && newer[0]?.number !== last) batches = [];
    batches = [...batches.filter((one) => one.number < (newer[0]?.number ?? Infinity)), ...newer].slice(-most);
    const at = batches.map((one) => instant(one.at));
    const rate = (name) => batches.map((one, i) => (i ? one[name] / Math.max(0.001, at[i] - at[i - 1]) : null));
    const [rowsIn, rowsOut] = [rate("rows_in"), rate("rows_out")];
    const lags = queries.map((one) => one.lag).filter((one) => one !== null && one !== undefined).map(Number);
    const values = [short(rowsIn.at(-1)), short(rowsOut.at(-1)), lags.length ? seconds(Math.max(...lags)) : "–", batches.length ? whole(batches.at(-1).number) : "–",
      whole(queries.length), bytes(sum(held, "bytes"))];
    tiles.forEach((tile, i) => say(tile.value, values[i]));
    const counts = Object.entries(Object.groupBy?.(queries, (one) => one.state) ?? {});
    fill(states, counts.map(([word, all]) => h("a", { href: "#/queries" }, state(word), ` ${all.length}`)));
    rates.draw([at.slice(1), rowsIn.slice(1), rowsOut.slice(1)]);
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
    return { label: phase, value: spent, text: last.length ? `${seconds(spent / last.length)}` : "" };
  })));
}

export async function bothSources() {
  const [streams, relations] = await Promise.all([relation("streams"), relation("relations")]);
  return [...streams.map((one) => ({ ...one, is: "stream" })), ...relations.map((one) => ({ ...one, is: "relation" }))];
}

const sum = (rows, name) => rows.reduce((all, row) => all + Number(row[name] ?? 0), 0);
