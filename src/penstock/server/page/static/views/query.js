// One query: its text and state, what can be done with it, the plan that runs, its results.

import { execute, get, literal, once, queryPath, relation, request } from "../api.js";
import { ask, errorBox, fill, h, messageBox, notice, state } from "../dom.js";
import { sqlText } from "../editor.js";
import { bytes, seconds, share, short, shown } from "../format.js";
import { version } from "../live.js";
import { OperatorFigures, Plan } from "../plan.js";
import { Results } from "../results.js";
import { needs } from "../roles.js";
import { Attributes } from "../attributes.js";
import { Tap } from "../tap.js";

export async function query(main, name) {
  const path = queryPath(name);
  let known = await get(path), results = null;
  const figures = new OperatorFigures();
  const badge = h("span", {}, state(known.state)), text = h("div", {}, sqlText(known.sql)), trouble = h("div"), about = h("dl");
  let unmeasured = null;
  const attributes = new Attributes(), node = h("div", { class: "quiet" }, "choose an operator to see what it does");
  const tap = new Tap(), plan = new Plan((id) => chosen(id), (from, to) => tap.of(from, to));
  const buttons = h("div", { class: "row" });
  const place = h("section");
  fill(main, h("h1", {}, name, " ", badge), trouble, buttons,
    h("div", { class: "columns" }, h("section", {}, h("h2", {}, "Statement"), text), h("section", {}, h("h2", {}, "Figures"), about)),
    h("section", {}, h("div", { class: "row" }, h("h2", { class: "grow" }, "Running plan"),
      h("a", { href: `${path}/plan?format=text`, target: "_blank" }, "as text"), h("a", { href: `${path}/plan?format=json`, target: "_blank" }, "as JSON")),
    plan.element, node, attributes.element, tap.element), place);

  async function act(call, done) {
    try {
      await call();
      notice(done);
      await refresh();
    } catch (error) {
      fill(trouble, errorBox(error));
      trouble.scrollIntoView({ block: "nearest" });
    }
  }
  const patch = (body, done) => act(() => request("PATCH", path, body, once()), done);

  function showButtons() {
    const allowed = needs("control"), paused = known.state === "PAUSED" || known.state === "FAILED";
    fill(buttons,
      paused ? h("button", { class: "first", onclick: resume, ...allowed }, "Resume") : h("button", { onclick: () => patch({ state: "PAUSED" }, `${name} is paused`), ...allowed }, "Pause"),
      h("button", { onclick: edit, ...allowed }, "Alter"), h("button", { onclick: rename, ...allowed }, "Rename"), h("button", { onclick: weigh, ...allowed }, "Weight"),
      h("button", { class: "grave", onclick: drop, ...allowed }, "Drop"));
  }

  async function resume() {
    const answer = await ask(`Resume ${name}`, { fields: [{ name: "start", label: "from where it answers", options: ["NOW", "WARM", "BEGINNING"], value: "WARM" }], yes: "Resume" });
    if (answer) await patch({ state: "RUNNING", start: answer.start }, `${name} answers again`);
  }

  async function edit() {
    const answer = await ask(`Alter ${name}`, { fields: [{ name: "sql", label: "its new SELECT", value: select(known.sql), area: true },
      { name: "start", label: "from where it answers", options: ["(as it can)", "NOW", "WARM", "BEGINNING"] }], yes: "Alter" });
    if (answer) await patch({ sql: answer.sql, ...(answer.start.startsWith("(") ? {} : { start: answer.start }) }, `${name} is changed`);
  }

  async function rename() {
    const answer = await ask(`Rename ${name}`, { fields: [{ name: "name", label: "its new name", value: name }], yes: "Rename" });
    if (answer?.name && answer.name !== name) await act(() => request("PATCH", path, { name: answer.name }, once()).then(() => { location.hash = `#/query/${encodeURIComponent(answer.name)}`; }), `${name} is ${answer.name} now`);
  }

  async function weigh() {
    const answer = await ask(`Weight of ${name}`, { text: "Queries of larger weight are served first.", fields: [{ name: "weight", label: "weight, 1 where nothing was said", value: known.attributes?.weight ?? "1" }], yes: "Set" });
    if (answer) await act(() => execute(`UPDATE penstock.queries SET weight = ${Number(answer.weight)} WHERE name = ${literal(name)}`, once()), `${name} has the weight ${answer.weight}`);
  }

  async function drop() {
    const answer = await ask(`Drop ${name}?`, { text: "Its state and its results are removed. This cannot be taken back.", yes: "Drop", grave: true });
    if (answer) await act(() => request("DELETE", path, undefined, once()).then(() => { location.hash = "#/queries"; }), `${name} is dropped`);
  }

  async function chosen(id) {
    if (id === null) { unmeasured = null; fill(node, "choose an operator to see what it does"); attributes.hide(); return; }
    const found = figures.operators.get(id);
    unmeasured = found ? null : id;
    fill(node, found ? h("dl", {}, Object.entries(found).filter(([, value]) => value !== null).map(([key, value]) => [h("dt", {}, key), h("dd", {}, shown(value))])) : "this part has no figures of its own");
    if (found) await attributes.of(found.id); else attributes.hide();
  }

  async function refresh() {
    known = await get(path);
    const [told] = await relation("queries", { where: `name = ${literal(name)}` });
    const preferences = await relation("preferences", { where: `query = ${literal(name)}` });
    fill(badge, state(known.state));
    fill(about, [
      ["rows a second", short(told?.rows_per_second)], ["rows", short(told?.rows)], ["heartbeat", shown(told?.heartbeat)], ["lag", seconds(told?.lag)],
      ["latency, median and 99 %", `${seconds(told?.latency_p50)}, ${seconds(told?.latency_p99)}`], ["state", `${bytes(told?.state_bytes)}, own ${bytes(told?.own_bytes)}, shared ${bytes(told?.shared_bytes)}`],
      ["CPU", `${seconds(told?.cpu_seconds)}, ${share(told?.cpu_share)} of all`], ["weight", shown(told?.weight)], ["since", shown(told?.started_at)], ["result", known.sink],
      ...preferences.slice(0, 1).flatMap(preferred),
    ].map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]));
    if (known.error) fill(trouble, messageBox("error", known.error));
    if (text.textContent !== known.sql) fill(text, sqlText(known.sql));
    showButtons();
    await redraw();
    if (!results && known.columns.length) {
      results = new Results(known);
      fill(place, h("h2", {}, "Results"), results.element);
    }
  }

  async function redraw() {
    await plan.load(`/v1/plan?query=${encodeURIComponent(name)}`, version());
    if (plan.nodes.size) await figures.refresh(`key IN (${plan.keys.map(literal).join(", ")})`);
    plan.figures(figures.shown);
    // The picture comes before the figures: an operator that was chosen in between is shown now.
    if (unmeasured !== null && figures.operators.has(unmeasured)) await chosen(unmeasured);
  }

  showButtons();
  return Object.assign(refresh, { close: () => { results?.close(); tap.hide(); } });
}

// How much of the work of a preference is done, and how late.
function preferred(one) {
  return [
    ["share done", `${share(one.share)}, ${short(one.entries_waiting)} entries wait`],
    ["completeness, estimated", share(one.completeness)], ["results for each row", short(one.results_per_row)],
    ["delay of promising, median and 95 %", `${seconds(one.promising_delay)}, ${seconds(one.promising_delay_high)}`],
    ["delay of others, median and 95 %", `${seconds(one.other_delay)}, ${seconds(one.other_delay_high)}`],
    ["distance in time of the two rows", seconds(one.age_difference)],
  ];
}

// The text of a query is CREATE QUERY .. AS SELECT ..; ALTER QUERY takes what is behind AS.
function select(sql) {
  const found = /^\s*CREATE\b[\s\S]*?\bAS\s+([\s\S]*?);?\s*$/i.exec(sql);
  return found ? found[1] : sql;
}
