// Values as people read them.

const units = ["", "k", "M", "G", "T", "P"];

/** Return a number with three digits and a unit: 12.3 k. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  let number = Number(value);
  if (!Number.isFinite(number)) return String(value);
  let unit = 0;
  while (Math.abs(number) >= 1000 && unit < units.length - 1) { number /= 1000; unit += 1; }
  const digits = unit === 0 && Number.isInteger(number) ? 0 : Math.abs(number) >= 100 ? 0 : Math.abs(number) >= 10 ? 1 : 2;
  return `${number.toFixed(digits)}${units[unit] ? " " + units[unit] : ""}`;
}

/** Return an instant, given in seconds since 1970, as the tables have it: in UTC. digits: of the seconds. */
export function clock(at, digits = 0) {
  const date = new Date(at * 1000);
  return Number.isNaN(date.getTime()) ? String(at) : date.toISOString().replace(/\.(\d*)Z$/, (all, rest) => (digits ? `.${rest.slice(0, digits)}Z` : "Z"));
}

export const whole = (value) => (value === null || value === undefined ? "–" : BigInt(Math.trunc(Number(value))).toLocaleString("en"));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const names = ["B", "kB", "MB", "GB", "TB"];
  let number = Number(value), unit = 0;
  while (number >= 1000 && unit < names.length - 1) { number /= 1000; unit += 1; }
  return `${unit && number < 100 ? number.toFixed(1) : Math.round(number)} ${names[unit]}`;
}

/** Return seconds as a duration. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  const number = Number(value);
  if (number && Math.abs(number) < 0.0001) return "< 0.1 ms";
  if (number && Math.abs(number) < 0.01) return `${Number((number * 1000).toPrecision(2))} ms`;
  if (Math.abs(number) < 1) return `${Math.round(number * 1000)} ms`;
  if (Math.abs(number) < 120) return `${number.toFixed(number < 10 ? 1 : 0)} s`;
  if (Math.abs(number) < 7200) return `${Math.round(number / 60)} min`;
  if (Math.abs(number) < 172800) return `${(number / 3600).toFixed(1)} h`;
  return `${Math.round(number / 86400).toLocaleString("en")} d`;
}

export const share = (value) => (value === null || value === undefined ? "–" : `${(100 * Number(value)).toFixed(Number(value) < 0.1 ? 1 : 0)} %`);

/** Return a value of a row as text. */
export function shown(value) {
  if (value === null || value === undefined) return "NULL";
  if (typeof value === "object" && typeof value !== "bigint") {
    return JSON.stringify(value, (key, one) => (typeof one === "bigint" ? String(one) : one));
  }
  return String(value);
}

/** Return what the browser keeps for this page; null where it keeps nothing. */
export function kept(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

/** Keep a text for this page, where the browser does and has room. */
export function keep(name, text) {
  try { localStorage.setItem(name, text); } catch { /* it is shown all the same */ }
}

const numeric = /^(TINYINT|SMALLINT|INT|INTEGER|BIGINT|FLOAT|REAL|DOUBLE|DECIMAL)\b/i;
export const isNumber = (type) => numeric.test(type ?? "");

/** Return an instant as seconds for a chart; numbers stay what they are. */
export function instant(value) {
  if (typeof value === "number") return value;
  if (typeof value === "bigint") return Number(value);
  const text = String(value ?? "");
  if (/^-?\d+(\.\d+)?$/.test(text)) return Number(text);
  const parsed = Date.parse(/Z$|[+-]\d\d:?\d\d$/.test(text) ? text : text.replace(" ", "T") + "Z");
  return Number.isNaN(parsed) ? null : parsed / 1000;
}

export const isClock = (value) => typeof value === "string" && !/^-?\d+(\.\d+)?$/.test(value);

const words = new Set(("SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT AS AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT "
  + "UNION ALL EXCEPT INTERSECT JOIN LEFT RIGHT FULL OUTER ON USING WITH CREATE REPLACE QUERY STREAM RELATION VIEW FUNCTION DROP ALTER SET "
  + "INTO START NOW WARM BEGINNING AT RETAIN TIMESTAMP PRIMARY KEY RANGE ROWS SLIDE UNBOUNDED PARTITION ISTREAM DSTREAM RSTREAM "
  + "SECOND SECONDS MINUTE MINUTES HOUR HOURS DAY DAYS INSERT UPDATE DELETE VALUES SHOW DESCRIBE EXPLAIN SUBSCRIBE TO BEGIN COMMIT "
  + "PAUSE RESUME RENAME SWAP CASCADE IF EXISTS TRUE FALSE FREQUENCY").split(" "));
const token = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^'\\]|\\[\s\S]|'')*(?:'|$))|(`(?:[^`]|``)*(?:`|$)|"(?:[^"]|"")*(?:"|$))|(\b\d[\w.]*)|([A-Za-z_][\w]*)|([\s\S])/g;

/** Return the first word of a script in capitals, or the sign that it begins with. */
export function firstWord(text) {
  for (const match of text.matchAll(token)) if (!match[1] && match[0].trim()) return match[0].toUpperCase();
  return "";
}

/** Return in what the end of a script is: `comment`, `literal`, a `name` in backticks, or empty. */
export function endOf(text) {
  let last = null;
  for (const match of text.matchAll(token)) last = match;
  if (!last) return "";
  if (last[1]) return last[1].startsWith("--") || !/\*\/$/.test(last[1]) ? "comment" : "";
  const word = last[2] ?? last[3];
  if (!word) return "";
  const mark = word[0], inside = word.slice(1).replaceAll(mark + mark, "").replace(/\\[\s\S]/g, "");
  return inside.endsWith(mark) ? "" : mark === "`" ? "name" : "literal";
}

/** Return the numbers of an axis as texts that differ, however near they are to each other. step: between two of them. */
export function axis(numbers, step) {
  const largest = Math.max(...numbers.map(Math.abs));
  let unit = 0;
  // A unit that would need more than three digits behind the point is less readable than none.
  while (largest / 1000 ** unit >= 1000 && step >= 1000 ** unit && unit < units.length - 1) unit += 1;
  const size = 1000 ** unit, digits = Math.min(12, Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)));
  // A step of 2.5 has a digit more than one of 2.
  const more = Math.abs((step / size) * 10 ** digits - Math.round((step / size) * 10 ** digits)) > 1e-6 ? 1 : 0;
  return numbers.map((one) => (one === 0 ? "0" : largest >= 1e18 ? one.toExponential(2) : `${(one / size).toFixed(digits + more)}${units[unit] ? " " + units[unit] : ""}`));
}

/** Yield [kind, text] of the words of a script; kind: `word`, `literal`, `comment` or empty. */
export function* highlighted(text) {
  let plain = "";
  for (const match of text.matchAll(token)) {
    const kind = match[1] ? "comment" : match[2] || match[4] ? "literal" : match[5] && words.has(match[5].toUpperCase()) ? "word" : "";
    if (!kind) { plain += match[0]; continue; }
    if (plain) yield ["", plain];
    plain = "";
    yield [kind, match[0]];
  }
  if (plain) yield ["", plain];
}
