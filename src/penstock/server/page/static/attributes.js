// The attributes of an entity; those that can be set are forms. With an operator come the kinds of its synopses.

import { literal, once, relation, request } from "./api.js";
import { errorBox, fill, h, notice, prose } from "./dom.js";
import { shown } from "./format.js";
import { needs } from "./roles.js";

//: Choices of a plan: each begins a change of the plan of every query that uses the operator.
const PLAN = new Set(["kind", "join_order", "shared"]);

export class Attributes {
  constructor() {
    this.element = h("div", { hidden: true });
  }

  hide() {
    this.element.hidden = true;
  }

  async of(entity) {
    let rows = [];
    const [kind, key] = [entity.slice(0, entity.indexOf(":")), entity.slice(entity.indexOf(":") + 1)];
    const also = kind === "operator" ? ` OR entity LIKE ${literal(`synopsis:${key}.%`)}` : "";
    try { rows = await relation("attributes", { where: `entity = ${literal(entity)}${also}` }); } catch { rows = []; }
    const possible = new Map(rows.filter((one) => one.attribute === "possible").map((one) => [one.entity, one.value]));
    // What the operator does not have cannot be chosen of it.
    const settable = rows.filter((one) => one.settable && !(PLAN.has(one.attribute) && one.value === null)
      && (one.attribute !== "kind" || possible.get(one.entity)));
    this.element.hidden = !settable.length;
    fill(this.element, h("h2", {}, "Settable"), settable.map((one) => this.form(one, possible.get(one.entity))));
  }

  form(one, possible) {
    const entity = one.entity, ofPlan = PLAN.has(one.attribute);
    const choices = one.attribute === "kind" ? possible.split(", ") : one.attribute === "shared" ? ["true", "false"] : null;
    const value = one.value === null ? "" : shown(one.value), common = { "aria-label": one.attribute, ...needs("control") };
    const input = choices
      ? h("select", common, ["", ...choices].map((name) => h("option", { value: name, selected: name === value }, name || "the planner's choice")))
      : h("input", { ...common, value });
    const trouble = h("div");
    const set = async (event) => {
      event.preventDefault();
      try {
        await request("PATCH", `/v1/entities/${encodeURIComponent(entity)}`, { attributes: { [one.attribute]: ofPlan && !input.value ? null : input.value } }, once());
        fill(trouble);
        notice(ofPlan ? "the new plan takes over when its windows are full" : `${one.attribute} of ${entity} is ${input.value}`);
      } catch (error) { fill(trouble, errorBox(error)); }
    };
    return h("form", { onsubmit: set }, h("label", {}, h("span", {}, `${entity.startsWith("synopsis:") ? `${entity.slice(entity.indexOf(".") + 1)}: ` : ""}${one.attribute}${one.unit ? `, ${one.unit}` : ""}: `, prose(one.help)),
      h("div", { class: "row" }, input, h("button", needs("control"), "Set"))), trouble);
  }
}
