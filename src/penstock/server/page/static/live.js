// Events of the server: the page reads figures after a batch, at most twice a second, and nothing while it is hidden.

import { get, parsed } from "./api.js";
import { say } from "./dom.js";

const followers = new Set();
const pause = 500;
// Milliseconds after the last batch when figures are read once more: they show then that no rows come.
const rest = 11000;
let resting = null;
// Milliseconds between two looks at the clock, and how late one is after which the computer has slept.
const look = 5000, asleep = 20000;
let looked = Date.now();
let source = null, wait = 1000, due = null, again = null, last = 0, begun = false;
let changed = { batch: null, others: [] }, commanded = false;

/** Call back with {batch, events} after something has happened; return what ends it. */
export function follow(callback) {
  followers.add(callback);
  return () => followers.delete(callback);
}

/** Return the version of the plan that runs, undefined before the first batch event. A command may have changed it
 * since then. */
export function version() {
  return commanded ? undefined : changed.batch?.version;
}

export function begin() {
  begun = true;
  connect();
}

export function end() {
  begun = false;
  disconnect();
}

function disconnect() {
  source?.close();
  source = null;
}

function connect() {
  if (source || !begun || document.hidden) return;
  source = new EventSource("/v1/events");
  source.onopen = () => {
    if (wait > 1000) notify();
    wait = 1000;
    link("live", false);
  };
  source.onerror = () => {
    disconnect();
    link("no connection, trying again", true);
    // The browser reports no reason. Where the session has ended, this request opens the form for a token.
    get("/v1/session").catch(() => {});
    // A server that starts again answers within seconds; one that stays away is tried every ten seconds.
    clearTimeout(again);
    again = setTimeout(connect, wait);
    wait = Math.min(wait * 1.6, 10000);
  };
  source.addEventListener("batch", (event) => {
    changed.batch = parsed(event.data);
    commanded = false;
    soon();
    clearTimeout(resting);
    resting = setTimeout(soon, rest);
  });
  for (const kind of ["command", "state"]) {
    source.addEventListener(kind, (event) => { commanded = true; changed.others.push({ event: kind, at: new Date(), ...parsed(event.data) }); soon(); });
  }
}

function soon() {
  if (due === null) due = setTimeout(notify, Math.max(0, last + pause - Date.now()));
}

async function notify() {
  clearTimeout(due);
  due = null;
  if (document.hidden) return;
  last = Date.now();
  const changes = { batch: changed.batch, events: changed.others };
  changed = { batch: changed.batch, others: [] };
  for (const callback of [...followers]) {
    try { await callback(changes); } catch (error) { console.warn(error); }
  }
  last = Date.now();
}

function link(text, lost) {
  const place = document.getElementById("link");
  say(place, text);
  place.className = lost ? "lost" : "";
}

/** Call back when the computer has slept: a connection of before may be gone without a word. Return what ends it. */
export function onWake(callback) {
  document.addEventListener("awake", callback);
  return () => document.removeEventListener("awake", callback);
}

setInterval(() => {
  const late = Date.now() - looked - look;
  looked = Date.now();
  if (late > asleep && !document.hidden) document.dispatchEvent(new Event("awake"));
}, look);
onWake(() => { disconnect(); connect(); notify(); });

document.addEventListener("visibilitychange", () => {
  // A browser runs the timers of a hidden page seldom.
  looked = Date.now();
  if (document.hidden) { disconnect(); link("paused", false); } else if (begun) { connect(); notify(); }
});
