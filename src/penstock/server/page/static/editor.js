// A field for scripts: the words in colours, and errors underlined where they are.

import { h, marking } from "./dom.js";
import { highlighted } from "./format.js";

//: Characters of a script up to which it is shown in colours: beyond that a key would take long.
const coloured = 40000;

export class Editor {
  /** candidates(before, whole): what may follow the text before the cursor, [{text, length, what}]. */
  constructor({ value = "", label = "statement", changed = () => {}, submitted = () => {}, candidates = null } = {}) {
    this.candidates = candidates;
    this.choices = h("ul", { class: "choices", id: "choices", role: "listbox", "aria-label": "completions", hidden: true });
    this.behind = h("pre", { "aria-hidden": "true" });
    this.errors = [];
    this.area = h("textarea", { "aria-label": label, spellcheck: "false", autocapitalize: "off", autocomplete: "off",
      ...(candidates ? { "aria-autocomplete": "list", "aria-controls": "choices" } : {}),
      oninput: (event) => {
        this.errors = [];
        this.draw();
        changed(this.value);
        // Text that is pasted, or set by a program, is no word that a user begins.
        if (event.inputType === "insertText" && event.data?.length === 1) this.complete(); else if (event.inputType !== "deleteContentBackward" || !this.choices.hidden) this.complete(!this.choices.hidden);
      },
      onblur: () => this.hide(),
      onclick: () => this.hide(),
      onkeydown: (event) => {
        if (this.completing(event)) { event.preventDefault(); return; }
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submitted(this.value); }
      } });
    this.element = h("div", { class: "editor" }, this.behind, this.area, this.choices);
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

  /** Write a text at the cursor, in place of what is marked; it can be undone. length: of the text before it that it replaces. */
  insert(text, length = 0) {
    this.area.focus();
    if (length) this.area.setSelectionRange(this.area.selectionStart - length, this.area.selectionEnd);
    if (!document.execCommand("insertText", false, text)) { this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end"); this.area.dispatchEvent(new InputEvent("input")); }
    this.hide();
  }

  // Handle a key while completions are shown, or the key that opens them; return whether it was one.
  completing(event) {
    if (!this.candidates) return false;
    if (event.key === " " && event.ctrlKey) { this.complete(); return true; }
    if (this.choices.hidden || event.ctrlKey || event.metaKey || event.altKey) return false;
    const all = this.found.length;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") this.point((this.at + (event.key === "ArrowDown" ? 1 : -1) + all + (this.at < 0 && event.key === "ArrowUp" ? 1 : 0)) % all);
    else if (event.key === "Escape") this.hide();
    else if ((event.key === "Tab" && !event.shiftKey) || (event.key === "Enter" && this.at >= 0)) this.take(Math.max(0, this.at));
    else return false;
    return true;
  }

  complete(isWanted = true) {
    if (!this.candidates) return;
    const place = this.area.selectionEnd, before = this.area.value.slice(0, place);
    this.found = isWanted && before.length <= coloured ? this.candidates(before, this.area.value) : [];
    this.at = -1;
    this.choices.hidden = !this.found.length;
    if (this.choices.hidden) { this.hide(); return; }
    // A press would take the keyboard from the text.
    this.choices.replaceChildren(...this.found.map((one, i) => h("li", { role: "option", id: `choice-${i}`, onpointerdown: (event) => { event.preventDefault(); this.take(i); } }, h("bdi", {}, one.text), " ", h("span", { class: "quiet" }, one.what))));
    const at = this.placeOf(place - this.found[0].length), box = this.element.getBoundingClientRect();
    this.choices.style.left = `${Math.max(0, Math.min(at.left - box.left, box.width - this.choices.offsetWidth - 4))}px`;
    this.choices.style.top = `${at.bottom - box.top + 2}px`;
  }

  // Where a letter of the text stands: the text behind has the same lines.
  placeOf(letter) {
    const walk = document.createTreeWalker(this.behind, NodeFilter.SHOW_TEXT), range = document.createRange();
    let rest = letter;
    while (walk.nextNode()) {
      const length = walk.currentNode.length;
      if (rest < length) { range.setStart(walk.currentNode, rest); range.setEnd(walk.currentNode, rest + 1); return range.getBoundingClientRect(); }
      rest -= length;
    }
    return this.behind.getBoundingClientRect();
  }

  point(at) {
    this.at = at;
    [...this.choices.children].forEach((one, i) => one.setAttribute("aria-selected", String(i === at)));
    this.choices.children[at].scrollIntoView({ block: "nearest" });
    this.area.setAttribute("aria-activedescendant", `choice-${at}`);
  }

  take(at) {
    const one = this.found[at];
    this.insert(one.text, one.length);
  }

  hide() {
    this.choices.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
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
