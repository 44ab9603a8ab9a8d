// Elements without markup in strings: a text of a user is always a text.

/** Return an element. attributes: properties, `on...` listeners, `class`, and attributes; children: nodes or texts. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (key in element && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replace what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set a text where it is another: what does not change costs no layout, and a selection in it stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show pairs of a name and a value; texts that do not change stay, so that they can be marked and copied. */
export function facts(list, pairs) {
  const names = pairs.map(([name]) => name).join("\u0000");
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    fill(list, pairs.map(([name]) => [h("dt", {}, name), h("dd")]));
  }
  pairs.forEach(([, value], i) => say(list.children[2 * i + 1], String(value ?? "–")));
}

/** Return a text of the documentation, whose parts in backticks are code. */
export function prose(text) {
  return h("span", { class: "prose" }, String(text ?? "").split(/`([^`]+)`/).map((part, i) => (i % 2 ? h("code", {}, part) : part)));
}

export function state(word) {
  const known = String(word ?? "");
  return h("span", { class: `state ${known.split(" ")[0]}` }, known);
}

/** Show a message for some seconds. */
export function notice(text, bad = false) {
  const place = document.getElementById("notices");
  const shown = h("div", { class: bad ? "notice bad" : "notice", role: bad ? "alert" : "status" }, text);
  place.append(shown);
  while (place.children.length > 4) place.firstChild.remove();
  setTimeout(() => shown.remove(), bad ? 12000 : 5000);
}

/** Return an error as a box with its code, place and hint. */
export function errorBox(error) {
  const all = error.errors?.length ? error.errors : [error];
  return h("div", {}, all.map((one) => messageBox("error", one)));
}

export function messageBox(kind, one) {
  const place = one.position;
  const marked = place && markedLine(place);
  return h("div", { class: kind },
    h("b", {}, [one.code, place && `line ${place.line}, column ${place.column}`].filter(Boolean).join(", ")),
    one.code || place ? ": " : "", h("span", { class: "message" }, one.message ?? String(one)), marked && h("pre", {}, marked),
    one.hint && h("div", { class: "quiet" }, one.hint));
}

// The line of an error, marked where it is: signs below it would not stand there behind a tab or a wide letter.
function markedLine({ text, column, length }) {
  const letters = [...text], [begin, end] = marking(letters, column, length);
  const part = (from, to) => letters.slice(from, to).join("");
  return [part(0, begin), h("mark", {}, part(begin, end) || " "), part(end)];
}

/** Return which letters of a line an error marks, from 0. At a space or behind the end there is nothing to be seen: then it is the letter before. */
export function marking(letters, column, length) {
  let begin = Math.max(0, Math.min(column, letters.length) - 1);
  if (length <= 1) while (begin > 0 && !letters[begin].trim()) begin -= 1;
  return [begin, Math.min(letters.length, begin + Math.max(1, length))];
}

/** Ask before something that cannot be taken back, or for values. fields: [{name, label, value, options, area}].
 * Return the values, null where the answer is no. */
export function ask(title, { text = "", fields = [], yes = "OK", grave = false } = {}) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => {
      if (field.options) {
        return h("select", { name: field.name }, field.options.map((one) => h("option", { value: one, selected: one === field.value }, one)));
      }
      const input = h(field.area ? "textarea" : "input", { name: field.name, rows: "6", class: field.area ? "sql" : "" });
      input.value = field.value ?? "";
      return input;
    });
    const form = h("form", { method: "dialog" },
      h("h2", {}, title), text && h("p", {}, text),
      fields.map((field, i) => h("label", {}, h("span", {}, field.label), inputs[i])),
      h("div", { class: "row" }, h("button", { value: "yes", class: grave ? "grave" : "first" }, yes), h("button", { value: "no", formnovalidate: true }, "Cancel")));
    const dialog = h("dialog", { "aria-label": title, onclose: () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? Object.fromEntries(inputs.map((one) => [one.name, one.value])) : null);
    } }, form);
    document.body.append(dialog);
    dialog.showModal();
    inputs[0]?.focus();
  });
}
