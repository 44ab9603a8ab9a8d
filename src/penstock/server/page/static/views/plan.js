// The plan that runs: of all queries, of one, or of those that read a stream or relation.

import { relation } from "../api.js";
import { fill, h, say } from "../dom.js";
import { version } from "../live.js";
import { Operator } from "../operator.js";
import { OperatorFigures, Plan } from "../plan.js";
import { Tap } from "../tap.js";
import { bothSources } from "./overview.js";

export async function wholePlan(main) {
  const tap = new Tap(), figures = new OperatorFigures(), operator = new Operator(figures);
  const plan = new Plan((id) => operator.choose(id), (from, to) => tap.of(from, to));
  const none = h("p", { class: "quiet" }, "reading");
  const query = h("select", { "aria-label": "only of the query", onchange: () => again() }), source = h("select", { "aria-label": "only of queries that read", onchange: () => again() });
  fill(main, h("h1", {}, "Running plan"), h("section", {}, h("div", { class: "row" }, query, source), none, plan.element, operator.element, tap.element));

  // What can be chosen; what is chosen stays so.
  function offer(select, all, names) {
    const kind = names.join("\u0000");
    if (select.dataset.kind === kind) return;
    select.dataset.kind = kind;
    const chosen = select.value;
    fill(select, h("option", { value: "" }, all), names.map((name) => h("option", { value: name }, name)));
    select.value = names.includes(chosen) ? chosen : "";
  }

  async function again() {
    plan.version = null;
    await refresh();
  }

  const isAll = () => !query.value && !source.value;
  const refresh = async () => {
    const [queries, sources] = await Promise.all([relation("queries", { columns: "name" }), bothSources()]);
    offer(query, "all queries", queries.map((one) => one.name).sort());
    offer(source, "all streams and relations", sources.map((one) => one.name).sort());
    const filter = [query.value && `query=${encodeURIComponent(query.value)}`, source.value && `source=${encodeURIComponent(source.value)}`].filter(Boolean).join("&");
    // What is not shown has no size into which a picture could fit.
    plan.place.hidden = false;
    await plan.load(`/v1/plan${filter && "?"}${filter}`, version());
    say(none, "no operator runs that is chosen");
    none.hidden = plan.nodes.size > 0;
    plan.place.hidden = operator.element.hidden = !plan.nodes.size;
    if (plan.nodes.size) await figures.refresh(isAll() ? null : plan.keys);
    plan.figures(figures.shown);
    await operator.refresh();
  };
  return Object.assign(refresh, { close: () => tap.hide() });
}
