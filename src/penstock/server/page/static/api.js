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

// A connection that breaks is an error of status 0.
async function reached(work) {
  try { return await work; } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, { message: "the server does not answer" });
  }
}

/** Return a text that the server draws, null where it refuses. */
export async function drawn(path) {
  const answer = await reached(fetch(path, { credentials: "same-origin" }));
  return answer.ok ? reached(answer.text()) : null;
}

export const parsed = (text) => JSON.parse(text, exact);

/** Return the answer to a request as JSON, null where it has no content. */
export async function request(method, path, body, { headers = {}, signal } = {}) {
  const content = body === undefined ? (method === "POST" || method === "PATCH" ? "{}" : undefined) : JSON.stringify(body);
  const answer = await reached(fetch(path, {
    method, body: content, signal, credentials: "same-origin",
    headers: { ...(content === undefined ? {} : { "Content-Type": "application/json" }), Accept: "application/json", ...headers },
  }));
  if (!answer.ok) throw await refusal(answer);
  const text = await reached(answer.text());
  return text ? parsed(text) : null;
}

/** Yield the texts of an answer as they come. Throw the error of one that is none. */
export async function* texts(method, path, body, { headers = {}, signal } = {}) {
  const content = body === undefined ? undefined : JSON.stringify(body);
  const answer = await reached(fetch(path, { method, body: content, signal, credentials: "same-origin", headers: { ...(content === undefined ? {} : { "Content-Type": "application/json" }), ...headers } }));
  if (!answer.ok) throw await refusal(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reached(reader.read());
    if (done) return;
    yield value;
  }
}

/** Yield {id, rows} of a stream of results. An error of it is thrown. */
export async function* events(method, path, body, { headers = {}, signal } = {}) {
  let rest = "";
  for await (const text of texts(method, path, body, { headers: { ...headers, Accept: "text/event-stream" }, signal })) {
    const blocks = (rest + text).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = { event: "", id: "", data: "" };
      for (const line of block.split("\n")) {
        const [, name, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
        if (name in fields) fields[name] = name === "data" ? fields.data + value : value;
      }
      if (fields.event === "error") throw new ServerError(409, parsed(fields.data));
      if (fields.event === "rows") yield { id: fields.id, rows: parsed(fields.data) };
    }
  }
}

async function refusal(answer) {
  const text = await reached(answer.text());
  let problem = {};
  try { problem = parsed(text); } catch { problem = { message: text.slice(0, 500) || undefined }; }
  if (answer.status === 401) window.dispatchEvent(new CustomEvent("signed-out"));
  return new ServerError(answer.status, problem);
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
