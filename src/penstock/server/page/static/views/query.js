// One query: its text and state, what can be done with it, the plan that runs, its results.

import { execute, get, literal, once, queryPath, quoted, relation, request } from "../api.js";
import { ask, errorBox, facts, fill, h, messageBox, notice, state } from "../dom.js";
import { sqlText } from "../editor.js";
import { bytes, clock, instant, seconds, share, short, shown } from "../format.js";
import { version } from "../live.js";
import { Operator } from "../operator.js";
import { OperatorFigures, Plan } from "../plan.js";
import { Results } from "../results.js";
import { needs } from "../roles.js";
import { Tap } from "../tap.js";

// What to do about a query that has stopped, where its error has no hint.
const advice = {
  FAILED: "Resume begins it again: with NOW behind the row at which it failed. Alter gives it another statement. All others go on.",
  "NEEDS ATTENTION": "start the server with what it lacks, then Resume; or drop it and declare it again. Its state is kept until then.",
};

export async function query(main, name) {
  const path = queryPath(name);
  let known = await get(path), results = null;
  const figures = new OperatorFigures();
  const badge = h("span", {}, state(known.state)), text = h("div", {}, sqlText(known.sql)), trouble = h("div"), about = h("dl", {}, h("dt", {}, "reading"));
  const operator = new Operator(figures);
  const tap = new Tap(), plan = new Plan((id) => operator.choose(id), (from, to) => tap.of(from, to));
  const buttons = h("div", { class: "row" }), none = h("p", { class: "quiet", hidden: true }, "none of its operators runs");
  const place = h("section");
  fill(main, h("h1", {}, h("bdi", {}, name), " ", badge), trouble, buttons,
    h("div", { class: "beside" },
      h("div", {}, h("section", {}, h("h2", {}, "Statement"), text), h("section", {}, h("h2", {}, "Figures"), about)),
      h("section", {}, h("div", { class: "row" }, h("h2", { class: "grow" }, "Running plan"),
        h("a", { href: queryPath(name, "/plan", "format=text"), target: "_blank" }, "as text"), h("a", { href: queryPath(name, "/plan", "format=json"), target: "_blank" }, "as JSON")),
      none, plan.element, operator.element, tap.element)), place);

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

  let buttonsOf = null;
  function showButtons() {
    // What is shown stays, or the keyboard would lose its place after each batch.
    if (buttonsOf === known.state) return;
    const focused = buttons.contains(document.activeElement) ? document.activeElement.textContent : null;
    buttonsOf = known.state;
    const allowed = needs("control"), pausing = { PAUSED: "Resume", FAILED: "Resume", "NEEDS ATTENTION": "Resume", COMPLETED: null }[known.state];
    fill(buttons,
      pausing === "Resume" ? h("button", { class: "first", onclick: resume, ...allowed }, "Resume")
        : pausing === undefined && h("button", { onclick: stop, ...allowed }, "Pause"),
      h("button", { onclick: edit, ...allowed }, "Alter"), h("button", { onclick: rename, ...allowed }, "Rename"), h("button", { onclick: weigh, ...allowed }, "Weight"),
      h("button", { class: "grave", onclick: drop, ...allowed }, "Drop"));
    if (focused !== null) ([...buttons.children].find((one) => one.textContent === focused) ?? buttons.firstChild)?.focus();
  }

  async function stop() {
    const keeps = "kept up to date", answer = await ask(`Pause ${name}`, { fields: [{ name: "kept", label: "its state", options: [keeps, "dropped"], value: keeps }], yes: "Pause",
      text: "It emits nothing until it is resumed. With its state it resumes at any time; without it, as far as its past can be read again." });
    if (answer) await patch({ state: "PAUSED", with_state: answer.kept === keeps }, `${name} is paused`);
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
    const answer = await ask(`Weight of ${name}`, { text: "Queries of larger weight are served first.", fields: [{ name: "weight", label: "weight, 1 by default", value: known.attributes?.weight ?? "1" }], yes: "Set" });
    if (answer) await act(() => execute(`ALTER QUERY ${quoted(name)} SET (weight ${literal(answer.weight.trim())})`, once()), `${name} has the weight ${answer.weight.trim()}`);
  }

  async function drop() {
    const answer = await ask(`Drop ${name}?`, { text: "Its state and its results are removed. This cannot be taken back.", yes: "Drop", grave: true });
    if (answer) await act(() => request("DELETE", path, undefined, once()).then(() => { location.hash = "#/queries"; }), `${name} is dropped`);
  }

  let isOver = false, isError = false;
  async function refresh() {
    if (isOver) return;
    try { known = await get(path); } catch (error) {
      if (error.status !== 404) throw error;
      // Somebody has dropped or renamed it. What was seen last stays, without what would fail.
      isOver = true;
      results?.close();
      fill(badge, state("GONE"));
      fill(buttons, h("a", { href: "#/queries" }, "All queries"));
      fill(trouble, messageBox("error", { message: `there is no query ${name} any more: it was dropped or renamed`, hint: "below is what was seen last" }));
      tap.hide();
      return;
    }
    const [metrics] = await relation("queries", { where: `name = ${literal(name)}` });
    const preferences = await relation("preferences", { where: `query = ${literal(name)}` });
    if (badge.textContent !== known.state) fill(badge, state(known.state));
    facts(about, [
      ["rows a second", short(metrics?.rows_per_second)], ["rows of its result", metrics?.rows === null || metrics?.rows === undefined ? "–" : `${short(metrics.rows)} since ${metrics.counted_since ? clock(instant(metrics.counted_since)) : "it began"}`], ["heartbeat", shown(metrics?.heartbeat)], ["lag", seconds(metrics?.lag)],
      ["latency, median and 99 %", `${seconds(metrics?.latency_p50)}, ${seconds(metrics?.latency_p99)}`], ["state", `${bytes(metrics?.state_bytes)}, own ${bytes(metrics?.own_bytes)}, shared ${bytes(metrics?.shared_bytes)}`],
      ["CPU", `${seconds(metrics?.cpu_seconds)}, ${share(metrics?.cpu_share)} of all`], ["weight", shown(metrics?.weight)], ["answers since", shown(metrics?.started_at)], ["result", known.sink],
      ...(known.change ? [["change", known.change]] : []), ...preferences.slice(0, 1).flatMap(preferred),
    ]);
    if (known.error) { fill(trouble, messageBox("error", { ...known.error, hint: known.error.hint ?? advice[known.state] })); isError = true; } else if (isError) { fill(trouble); isError = false; }
    if (text.textContent !== known.sql) fill(text, sqlText(known.sql));
    showButtons();
    await redraw();
    if (isOver) return;
    if (!results && known.columns.length) {
      results = new Results(known);
      fill(place, h("h2", {}, "Results"), results.element);
    }
  }

  async function redraw() {
    await plan.load(`/v1/plan?query=${encodeURIComponent(name)}`, version());
    const isNone = !plan.nodes.size;
    if (none.hidden === isNone) {
      none.hidden = !isNone;
      plan.element.hidden = operator.element.hidden = isNone;
      if (!isNone) plan.begin();
    }
    if (!isNone) await figures.refresh(plan.keys);
    plan.figures(figures.shown);
    await operator.refresh();
  }

  showButtons();
  return Object.assign(refresh, { close: () => { isOver = true; results?.close(); tap.hide(); } });
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
