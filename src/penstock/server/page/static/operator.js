// What an operator of a plan does: its figures, what of it can be set, and how evenly its work is divided.

import { literal, relation } from "./api.js";
import { Attributes } from "./attributes.js";
import { errorBox, facts, fill, h } from "./dom.js";
import { shown } from "./format.js";
import { Table } from "./table.js";

const hint = "choose an operator to see what it does, or an edge to see rows that pass; dashed ones serve several queries, in whose colours they are marked";

export class Operator {
  /** figures: the OperatorFigures of the plan. */
  constructor(figures) {
    this.figures = figures;
    this.about = h("div", { class: "quiet" }, hint);
    this.attributes = new Attributes();
    this.shards = h("div", { hidden: true });
    this.element = h("div", {}, this.about, this.attributes.element, this.shards);
    this.id = null;
    this.isMeasured = false;
  }

  /** id: that of a node of the picture, null for none. */
  async choose(id) {
    this.id = id;
    this.isMeasured = false;
    this.shards.hidden = true;
    this.attributes.hide();
    if (id === null) { fill(this.about, hint); return; }
    await this.refresh();
    if (!this.isMeasured) fill(this.about, "this part has no figures of its own");
  }

  /** Show the newest figures. The picture may come before the first ones. */
  async refresh() {
    const id = this.id, found = id === null ? null : this.figures.operators.get(id);
    if (!found) return;
    if (!this.isMeasured) fill(this.about, this.list = h("dl"));
    facts(this.list, Object.entries(found).filter(([, value]) => value !== null).map(([key, value]) => [key, figure(value)]));
    const isFirst = !this.isMeasured;
    this.isMeasured = true;
    try {
      if (isFirst) await this.attributes.of(found.id);
      await this.divided(found.id, id);
    } catch (error) { if (this.id === id) fill(this.about, errorBox(error)); }
  }

  async divided(operator, id) {
    const rows = (await relation("operator_shards", { where: `operator = ${literal(operator)}` })).filter((row) => row.shard !== null);
    if (this.id !== id) return;
    this.shards.hidden = rows.length < 2;
    if (this.shards.hidden) return;
    if (!this.table || this.of !== id) {
      this.of = id;
      this.table = new Table(["shard", "rows_in", "rows_out", "seconds", "state_rows", "state_bytes"].map((name) => ({ name, label: name.replace("_", " "), number: true })), { label: "shards", key: (row) => row.shard, sorted: "shard" });
      fill(this.shards, h("h2", {}, "By shard"), this.table.element);
    }
    this.table.show(rows);
  }
}

const figure = (value) => (typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(4))) : shown(value));
