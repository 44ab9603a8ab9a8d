// The rows that pass over an edge of a plan, while its tap is shown.

import { literal, parsed, relation, ServerError, texts } from "./api.js";
import { errorBox, fill, h, say } from "./dom.js";
import { columnsOf, Table } from "./table.js";

const most = 50, longest = 30;

export class Tap {
  constructor() {
    this.element = h("div", { hidden: true });
    this.looking = null;
  }

  hide() {
    this.looking?.abort();
    this.looking = null;
    this.element.hidden = true;
  }

  /** Look at the edge between two operators, given by their keys. */
  async of(from, to) {
    this.hide();
    const looking = new AbortController();
    this.looking = looking;
    const status = h("span", { class: "quiet", role: "status" }, ""), place = h("div"), trouble = h("div");
    this.element.hidden = false;
    fill(this.element, h("div", { class: "row" }, h("h2", { class: "grow" }, "Rows that pass"), status,
      h("button", { type: "button", onclick: () => this.of(from, to) }, "Look again"),
      h("button", { type: "button", onclick: () => this.hide() }, "Close")), trouble, place);
    this.element.scrollIntoView({ block: "nearest" });
    try {
      const queues = await relation("queues", { columns: "id, port", where: `from_operator = ${literal(`operator:${from}`)} AND to_operator = ${literal(`operator:${to}`)}` });
      if (!queues.length) { say(status, "the rows of this edge are the results of the query"); return; }
      say(status, `waiting, at most ${longest} seconds`);
      const rows = [];
      let table = null;
      for await (const row of passing(queues[0].id, looking.signal)) {
        rows.push(row);
        if (!table) {
          table = new Table(columnsOf(Object.keys(row).map((name) => ({ name, type: typeof row[name] === "number" ? "DOUBLE" : "STRING" }))), { label: "rows that pass", most });
          fill(place, table.element);
        }
        table.show(rows);
        say(status, `${rows.length} rows`);
      }
      if (this.looking === looking) say(status, rows.length ? `${rows.length} rows` : `nothing has passed in ${longest} seconds`);
    } catch (error) {
      if (this.looking === looking && error.name !== "AbortError") fill(trouble, errorBox(error));
    }
  }
}

async function* passing(queue, signal) {
  let rest = "";
  for await (const text of texts("GET", `/v1/entities/${encodeURIComponent(queue)}/tap?rows=${most}&seconds=${longest}&format=ndjson`, undefined, { signal })) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const row = parsed(line);
      if (row.error?.code && row.count === undefined) throw new ServerError(409, row.error);
      yield row;
    }
  }
}
