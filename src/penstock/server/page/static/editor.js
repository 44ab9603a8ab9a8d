// A field for scripts: the words in colours, and errors underlined where they are.

import { h, marking } from "./dom.js";
import { highlighted } from "./format.js";

//: Characters of a script up to which it is shown in colours: beyond that a key would take long.
const coloured = 40000;

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

  /** Put another text in place of all, which can be undone as if it had been written. */
  replace(text) {
    this.area.focus();
    this.area.select();
    if (!document.execCommand("insertText", false, text)) { this.area.value = text; this.errors = []; this.draw(); }
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
    for (const [kind, word] of text.length > coloured ? [["", text]] : highlighted(text)) {
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
  const letters = [...(lines[line - 1] ?? "")], [first, last] = marking(letters, column, length);
  const begin = before + letters.slice(0, first).join("").length;
  return [begin, begin + letters.slice(first, last).join("").length];
}

/** Return a script as a text in colours. */
export function sqlText(text) {
  return h("pre", { class: "sql" }, [...highlighted(text ?? "")].map(([kind, word]) => (kind ? h("span", { class: kind }, word) : word)));
}
