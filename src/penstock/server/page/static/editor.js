// A field for scripts: the words in colours, and errors underlined where they are.

import { h } from "./dom.js";
import { highlighted } from "./format.js";

export class Editor {
  constructor({ value = "", label = "statement", changed = () => {}, submitted = () => {} } = {}) {
    this.behind = h("pre", { "aria-hidden": "true" });
    this.errors = [];
    this.area = h("textarea", { "aria-label": label, spellcheck: "false", autocapitalize: "off", autocomplete: "off",
      oninput: () => { this.errors = []; this.draw(); changed(this.value); },
      onkeydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submitted(this.value); }
      } });
    this.element = h("div", { class: "editor" }, this.behind, this.area);
    this.area.value = value;
    this.draw();
  }

  get value() { return this.area.value; }

  set value(text) {
    this.area.value = text;
    this.errors = [];
    this.draw();
  }

  /** Underline errors. errors: [{position: {line, column, length}}], from 1, in characters. */
  mark(errors) {
    this.errors = errors;
    this.draw();
  }

  draw() {
    const text = this.area.value;
    const places = this.errors.map((one) => one.position).filter(Boolean).map((one) => span(text, one)).sort((a, b) => a[0] - b[0]);
    const parts = [];
    let at = 0;
    for (const [kind, word] of highlighted(text)) {
      // A word may be underlined in part, and several words by one error.
      let begin = at;
      const end = at + word.length;
      for (const [from, to] of places) {
        if (to <= begin || from >= end) continue;
        parts.push([kind, text.slice(begin, Math.max(begin, from)), false], [kind, text.slice(Math.max(begin, from), Math.min(end, to)), true]);
        begin = Math.min(end, to);
      }
      parts.push([kind, text.slice(begin, end), false]);
      at = end;
    }
    this.behind.replaceChildren(...parts.filter(([, word]) => word).map(([kind, word, isWrong]) => h(isWrong ? "mark" : "span", { class: kind }, word)), "\n");
    this.area.style.height = "auto";
    this.area.style.height = `${Math.max(160, this.area.scrollHeight)}px`;
  }
}

// The server counts code points, a text of JavaScript has UTF-16 units.
function span(text, { line, column, length }) {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  const letters = [...(lines[line - 1] ?? "")];
  const begin = before + letters.slice(0, column - 1).join("").length;
  const marked = letters.slice(column - 1, column - 1 + Math.max(1, length)).join("").length;
  return [begin, begin + Math.max(1, marked)];
}

/** Return a script as a text in colours. */
export function sqlText(text) {
  return h("pre", { class: "sql" }, [...highlighted(text ?? "")].map(([kind, word]) => (kind ? h("span", { class: kind }, word) : word)));
}
