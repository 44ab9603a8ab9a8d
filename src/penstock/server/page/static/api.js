// Requests to the server. Errors are those of the server: `code`, `message`, `hint`, `position`, `errors`.

export class ServerError extends Error {
  constructor(status, content) {
    super(content.message ?? content.detail ?? `the server answered ${status}`);
    Object.assign(this, { status, code: content.code, hint: content.hint, position: content.position, errors: content.errors });
  }
}

// A BIGINT beyond 2^53 is no number of JavaScript: it becomes a BigInt, so no digit is lost.
function exact(key, value, context) {
  const beyond = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "");
  return beyond ? BigInt(context.source) : value;
}

export const parsed = (text) => JSON.parse(text, exact);

/** Return the answer to a request as JSON, null where it has no content. */
export async function request(method, path, body, { headers = {}, signal } = {}) {
  const content = body === undefined ? (method === "POST" || method === "PATCH" ? "{}" : undefined) : JSON.stringify(body);
  const answer = await fetch(path, {
    method, body: content, signal, credentials: "same-origin",
    headers: { ...(content === undefined ? {} : { "Content-Type": "application/json" }), Accept: "application/json", ...headers },
  });
  const text = await answer.text();
  if (!answer.ok) {
    let problem = {};
    try { problem = parsed(text); } catch { problem = { message: text.slice(0, 500) || undefined }; }
    const error = new ServerError(answer.status, problem);
    if (answer.status === 401) window.dispatchEvent(new CustomEvent("signed-out"));
    throw error;
  }
  return text ? parsed(text) : null;
}

export const get = (path, options) => request("GET", path, undefined, options);

/** Execute a script; return {statements, warnings}. An error of a command is thrown. */
export async function execute(sql, { headers } = {}) {
  const reply = await request("POST", "/v1/statements", { sql }, { headers });
  const failed = reply.statements.find((one) => one.error);
  if (failed) throw new ServerError(409, failed.error);
  return reply;
}

/** Return the rows of one SELECT: {columns: [{name, type}], rows: [{...}]}. */
export async function select(sql, signal) {
  const reply = await request("POST", "/v1/statements", { sql }, { signal });
  return reply.statements.at(-1);
}

/** Return the rows of a control relation. columns: those that are needed; where: a condition of CQL. */
export async function relation(name, { columns = "*", where = "" } = {}) {
  return (await select(`SELECT ${columns} FROM penstock.${name}${where ? ` WHERE ${where}` : ""}`)).rows;
}

export const quoted = (name) => "`" + name.replaceAll("`", "``") + "`";
export const literal = (text) => "'" + String(text).replaceAll("\\", "\\\\").replaceAll("'", "''") + "'";

/** Return the address of a query, or of what is below it, with its parameters.
 * A browser takes `.` and `..` for folders and gives `a/plan` the plan of `a`: such names go as a parameter. */
export function queryPath(name, below = "", parameters = "") {
  const isPlain = !/[/]|^[.]{1,2}$/.test(name);
  const all = [isPlain ? "" : `name=${encodeURIComponent(name)}`, parameters].filter(Boolean).join("&");
  return `/v1/queries/${isPlain ? encodeURIComponent(name) : "-"}${below}${all && `?${all}`}`;
}

/** Return a request that is made once, also when it is sent twice because the connection broke. */
export const once = () => ({ headers: { "Idempotency-Key": crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` } });
