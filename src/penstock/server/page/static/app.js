// The frame of the page: signing in, rooms by the part of the address behind `#`, and refreshing what is open.

import { get, request, ServerError } from "./api.js";
import { errorBox, fill, h, notice, say } from "./dom.js";
import { begin, end, follow } from "./live.js";
import { signedIn } from "./roles.js";
import { commands } from "./views/commands.js";
import { editor } from "./views/editor.js";
import { overview, remember } from "./views/overview.js";
import { wholePlan } from "./views/plan.js";
import { queries } from "./views/queries.js";
import { query } from "./views/query.js";
import { settings } from "./views/settings.js";
import { streams } from "./views/streams.js";

const rooms = { "": ["Overview", overview], queries: ["Queries", queries], streams: ["Streams", streams], plan: ["Plan", wholePlan], editor: ["Editor", editor],
  settings: ["Settings", settings], commands: ["Commands", commands] };
// Addresses of rooms of before.
const former = { console: "editor" };
const main = document.getElementById("main");
let open = { refresh: null, close: () => {} }, opening = 0, busy = false, again = false;

async function show() {
  const number = (opening += 1);
  const [written, ...rest] = location.hash.replace(/^#\/?/, "").split("/"), room = former[written] ?? written;
  const name = decoded(rest.join("/"));
  const view = room === "query" ? (place) => query(place, name) : (rooms[room] ?? rooms[""])[1];
  if (room !== "query" && !rooms[room]) notice(`There is no room ${room}; this is the overview.`, true);
  open.close();
  open = { refresh: null, close: () => {} };
  for (const link of document.querySelectorAll("#rooms a")) {
    const isHere = link.dataset.room === (room === "query" ? "queries" : rooms[room] ? room : "");
    if (isHere) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  document.title = `${name || (rooms[room] ?? rooms[""])[0]} – Penstock`;
  const place = h("div");
  // A room whose figures take long must not leave the room before on the screen.
  const late = setTimeout(() => { if (number === opening) fill(main, h("h1", {}, name || (rooms[room] ?? rooms[""])[0]), h("p", { class: "quiet", role: "status" }, "reading")); }, 300);
  try {
    const refresh = await view(place);
    if (number !== opening) { refresh?.close?.(); return; }
    clearTimeout(late);
    fill(main, place);
    open = { refresh, close: () => refresh?.close?.() };
    await refresh?.();
  } catch (error) {
    clearTimeout(late);
    if (number === opening && error.status !== 401) fill(main, h("h1", {}, name || (rooms[room] ?? rooms[""])[0]), errorBox(error), h("p", {}, h("a", { href: "#/queries" }, "All queries")));
  }
}

/** Return a part of the address as text; one that is no such text as it is. */
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/** Refresh the open room; never twice at a time. */
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    do { again = false; await open.refresh?.(); } while (again);
  } catch (error) { if (error.status && error.status !== 401) console.warn(error); } finally { busy = false; }
}

async function start() {
  let who;
  try { who = await get("/v1/session"); } catch (error) {
    if (error.status === 401) { signIn(); return; }
    fill(main, errorBox(error));
    setTimeout(start, 3000);
    return;
  }
  signedIn(who);
  const leave = document.getElementById("leave");
  leave.hidden = !who.needs_token;
  leave.title = `${who.name}, ${who.role}`;
  fill(document.getElementById("rooms"), Object.entries(rooms).map(([room, [label]]) => h("a", { href: `#/${room}`, "data-room": room }, label)));
  begin();
  await show();
}

function signIn() {
  end();
  open.close();
  fill(document.getElementById("rooms"));
  document.getElementById("leave").hidden = true;
  const token = h("input", { type: "password", autocomplete: "current-password", "aria-label": "token", required: true });
  const trouble = h("div");
  const enter = async (event) => {
    event.preventDefault();
    try {
      await request("POST", "/v1/session", {}, { headers: { Authorization: `Bearer ${token.value.trim()}` } });
      await start();
    } catch (error) { fill(trouble, errorBox(error)); token.select(); }
  };
  fill(main, h("form", { class: "welcome", onsubmit: enter }, h("h1", {}, "Penstock"),
    h("label", {}, h("span", {}, "Token: the server printed at its first start which file has one, or penstock token add NAME"), token),
    h("button", { class: "first" }, "Sign in"), trouble));
  token.focus();
}

window.addEventListener("signed-out", () => { if (!main.querySelector(".welcome")) signIn(); });
// A request of a room after a choice in it may be refused too, or not be answered.
window.addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof ServerError)) return;
  event.preventDefault();
  if (event.reason.status !== 401) notice(event.reason.message, true);
});
window.addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); });
document.getElementById("leave").addEventListener("click", async () => {
  try { await request("DELETE", "/v1/session"); signIn(); } catch (error) { notice(error.message, true); }
});
// The address behind `#` is that of a room, so the link to the content moves the keyboard by itself.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
follow(async (changes) => { remember(changes); await refresh(); });
say(document.getElementById("link"), "");
start();
