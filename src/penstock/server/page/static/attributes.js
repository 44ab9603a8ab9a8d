// The attributes of an entity; those that can be set are forms.

import { literal, once, relation, request } from "./api.js";
import { errorBox, fill, h, notice } from "./dom.js";
import { shown } from "./format.js";
import { needs } from "./roles.js";

export class Attributes {
  constructor() {
    this.element = h("div", { hidden: true });
  }

  hide() {
    this.element.hidden = true;
  }

  async of(entity) {
    let rows = [];
    try { rows = await relation("attributes", { where: `entity = ${literal(entity)}` }); } catch { rows = []; }
    const settable = rows.filter((one) => one.settable);
    this.element.hidden = !settable.length;
    fill(this.element, h("h2", {}, "Settable"), settable.map((one) => this.form(entity, one)));
  }

  form(entity, one) {
    const input = h("input", { "aria-label": one.attribute, value: one.value === null ? "" : shown(one.value), ...needs("control") });
    const trouble = h("div");
    const set = async (event) => {
      event.preventDefault();
      try {
        await request("PATCH", `/v1/entities/${encodeURIComponent(entity)}`, { attributes: { [one.attribute]: input.value } }, once());
        fill(trouble);
        notice(`${one.attribute} of ${entity} is ${input.value}`);
      } catch (error) { fill(trouble, errorBox(error)); }
    };
    return h("form", { onsubmit: set }, h("label", {}, h("span", {}, `${one.attribute}${one.unit ? `, ${one.unit}` : ""}: ${one.help ?? ""}`),
      h("div", { class: "row" }, input, h("button", needs("control"), "Set"))), trouble);
  }
}
