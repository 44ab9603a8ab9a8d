// What the system does at present: rates, memory and CPU by query, backlog, events.

import { relation } from "../api.js";
import { bars, Chart } from "../chart.js";
import { fill, h, say, state } from "../dom.js";
import { bytes, seconds, share, short, whole } from "../format.js";

const events = [];
const batches = [];
const most = 300;
let number = null;

/** Remember what was told; also while another room is open. */
export function remember({ batch, events: told }) {
  for (const one of told) events.unshift({ at: one.at, text: [one.event, one.number, one.kind, one.state].filter((part) => part !== undefined).join(" ") });
  events.length = Math.min(events.length, 50);
  if (batch) number = batch.number;
}

export async function overview(main) {
  const tiles = ["rows in a second", "rows out a second", "largest lag", "batches", "queries", "state"].map((label) => ({ label, value: h("b", {}, "–") }));
  const rates = new Chart([{ label: "in a second", show: short }, { label: "out a second", show: short }], { label: "rows a second" });
  const cpu = h("div"), memory = h("div"), synopses = h("div"), backlog = h("div"), log = h("div"), states = h("div", { class: "row" });
  fill(main, h("h1", {}, "Overview"),
    h("div", { class: "tiles" }, tiles.map((one) => h("div", { class: "tile" }, one.value, h("span", {}, one.label)))), states,
    h("div", { class: "columns" },
      h("section", {}, h("h2", {}, "Rows a second"), rates.element), h("section", {}, h("h2", {}, "Events"), log),
      h("section", {}, h("h2", {}, "CPU by query"), cpu), h("section", {}, h("h2", {}, "State by query"), memory),
      h("section", {}, h("h2", {}, "State by synopsis"), synopses), h("section", {}, h("h2", {}, "Waiting at the sources"), backlog)));

  return async () => {
    const [queries, sources, held] = await Promise.all([relation("queries"), bothSources(), relation("synopses")]);
    batches.push({ at: Date.now() / 1000, rows_in: sum(sources, "rows"), rows_out: sum(queries, "rows") });
    if (batches.length > most) batches.shift();
    const [last, before] = [batches.at(-1), batches.at(-2)];
    const per = (name) => (before ? Math.max(0, last[name] - before[name]) / Math.max(0.001, last.at - before.at) : null);
    const lags = queries.map((one) => one.lag).filter((one) => one !== null && one !== undefined).map(Number);
    const values = [short(per("rows_in")), short(per("rows_out")), lags.length ? seconds(Math.max(...lags)) : "–", number === null ? "–" : whole(number),
      whole(queries.length), bytes(sum(held, "bytes"))];
    tiles.forEach((tile, i) => say(tile.value, values[i]));
    const counts = Object.entries(Object.groupBy?.(queries, (one) => one.state) ?? {});
    fill(states, counts.map(([word, all]) => h("a", { href: "#/queries" }, state(word), ` ${all.length}`)));
    const rate = (name) => batches.slice(1).map((one, i) => Math.max(0, (one[name] - batches[i][name]) / Math.max(0.001, one.at - batches[i].at)));
    rates.draw([batches.slice(1).map((one) => one.at), rate("rows_in"), rate("rows_out")]);
    const link = (one) => `#/query/${encodeURIComponent(one.name)}`;
    fill(cpu, bars(queries.map((one) => ({ label: one.name, href: link(one), value: one.cpu_share ?? one.cpu_seconds, text: one.cpu_share === null ? seconds(one.cpu_seconds) : share(one.cpu_share) }))));
    fill(memory, bars(queries.map((one) => ({ label: one.name, href: link(one), value: one.state_bytes, text: bytes(one.state_bytes) }))));
    fill(synopses, bars(held.map((one) => ({ label: `${one.kind} of ${one.operator}`, value: one.bytes, text: bytes(one.bytes) }))));
    fill(backlog, bars(sources.map((one) => ({ label: one.name, href: "#/streams", value: one.backlog_bytes ?? one.backlog_splits, text: one.backlog_bytes === null ? `${whole(one.backlog_splits)} splits` : bytes(one.backlog_bytes) }))));
    fill(log, events.length ? h("dl", {}, events.slice(0, 14).map((one) => [h("dt", {}, one.at.toLocaleTimeString()), h("dd", {}, one.text)])) : h("p", { class: "quiet" }, "nothing since this page was opened"));
  };
}

export async function bothSources() {
  const [streams, relations] = await Promise.all([relation("streams"), relation("relations")]);
  return [...streams.map((one) => ({ ...one, is: "stream" })), ...relations.map((one) => ({ ...one, is: "relation" }))];
}

const sum = (rows, name) => rows.reduce((all, row) => all + Number(row[name] ?? 0), 0);
