// What may follow the text before the cursor: keywords, functions, and names of the catalog.

import { endOf } from "./format.js";

const plain = /^[A-Za-z_][A-Za-z0-9_]*$/, most = 50;
const aliases = (name) => new RegExp(`(?:\`((?:[^\`]|\`\`)+)\`|([A-Za-z_][\\w.]*))\\s*(?:\\[[^\\]]*\\]\\s*)?(?:\\bAS\\s+)?\`?${name.replace(/[^\w]/g, "\\$&")}\`?(?![\\w\`.])`, "gi");

/** Return [{text, length, what}] for the text before the cursor; length: of what a text replaces.
 *
 * whole: all of the text, where aliases are found; known: {keywords, functions, objects: [{name, kind, columns: [{name, type}]}]}.
 */
export function candidates(before, whole, known) {
  const end = endOf(before);
  if (end === "comment" || end === "literal") return [];
  const word = /(?:`(?:[^`]|``)*|[A-Za-z_]\w*)$/.exec(end === "name" ? before.slice(before.lastIndexOf("`")) : before.replaceAll("`", " "))?.[0] ?? "";
  const ahead = before.slice(0, before.length - word.length), qualifier = /(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*))\.$/.exec(ahead);
  if (qualifier) return matching(word, qualified((qualifier[1] ?? qualifier[2]).replaceAll("``", "`"), whole, known));
  if (!word) return [];
  const names = known.objects.filter((one) => !one.name.startsWith("penstock.")).map((one) => [one.name, one.kind]);
  const columns = known.objects.filter((one) => !one.name.startsWith("penstock.")).flatMap((one) => one.columns.map((column) => [column.name, "column"]));
  const others = end === "name" ? [] : [["penstock", "schema"], ...known.keywords.map((one) => [one, "keyword"]), ...known.functions.map((one) => [one, "function"])];
  return matching(word, [...names, ...columns, ...others]);
}

function qualified(name, whole, known) {
  const named = (other) => known.objects.find((one) => one.name.toLowerCase() === other.toLowerCase());
  if (name.toLowerCase() === "penstock") {
    return known.objects.filter((one) => one.name.startsWith("penstock.")).map((one) => [one.name.slice("penstock.".length), one.kind]);
  }
  let found = named(name);
  if (!found) {
    // An alias; of one that no FROM has, the columns of all.
    for (const match of whole.matchAll(aliases(name))) found ??= named((match[1] ?? match[2]).replaceAll("``", "`"));
  }
  const of = found ? [found] : known.objects.filter((one) => !one.name.startsWith("penstock."));
  return of.flatMap((one) => one.columns.map((column) => [column.name, "column"]));
}

function matching(word, names) {
  const isQuoted = word.startsWith("`"), prefix = word.replace(/^`/, "").replaceAll("``", "`").toLowerCase(), found = new Map();
  for (const [name, what] of names) {
    if (!name.toLowerCase().startsWith(prefix)) continue;
    const isWord = what === "keyword" || what === "function" || what === "schema";
    const text = isWord || (plain.test(name) && !isQuoted) ? name : `\`${name.replaceAll("`", "``")}\``;
    if (!found.has(text)) found.set(text, { text, length: word.length, what });
  }
  const order = (one) => (one.what === "keyword" ? 2 : one.what === "function" ? 1 : 0);
  return [...found.values()].filter((one) => one.text !== word).sort((a, b) => order(a) - order(b) || a.text.length - b.text.length || (a.text < b.text ? -1 : 1)).slice(0, most);
}
