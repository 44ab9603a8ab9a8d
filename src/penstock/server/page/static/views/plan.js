// The plan that runs, of all queries.

import { fill, h } from "../dom.js";
import { version } from "../live.js";
import { Operator } from "../operator.js";
import { OperatorFigures, Plan } from "../plan.js";
import { Tap } from "../tap.js";

export async function wholePlan(main) {
  const tap = new Tap(), figures = new OperatorFigures(), operator = new Operator(figures);
  const plan = new Plan((id) => operator.choose(id), (from, to) => tap.of(from, to));
  fill(main, h("h1", {}, "Running plan"), h("section", {}, plan.element, operator.element, tap.element));
  const refresh = async () => {
    await plan.load("/v1/plan", version());
    await figures.refresh();
    plan.figures(figures.shown);
    await operator.refresh();
  };
  return Object.assign(refresh, { close: () => tap.hide() });
}
