// The plan that runs, of all queries.

import { fill, h } from "../dom.js";
import { shown } from "../format.js";
import { version } from "../live.js";
import { OperatorFigures, Plan } from "../plan.js";
import { Tap } from "../tap.js";

export async function wholePlan(main) {
  const tap = new Tap(), figures = new OperatorFigures(), about = h("div", { class: "quiet" }, "choose an operator to see what it does, or an edge to see rows that pass; dashed ones serve several queries");
  const plan = new Plan((id) => {
    const found = figures.operators.get(id);
    fill(about, found ? h("dl", {}, Object.entries(found).filter(([, value]) => value !== null).map(([key, value]) => [h("dt", {}, key), h("dd", {}, shown(value))])) : "");
  }, (from, to) => tap.of(from, to));
  fill(main, h("h1", {}, "Running plan"), h("section", {}, plan.element, about, tap.element));
  const refresh = async () => {
    await plan.load("/v1/plan", version());
    await figures.refresh();
    plan.figures(figures.shown);
  };
  return Object.assign(refresh, { close: () => tap.hide() });
}
