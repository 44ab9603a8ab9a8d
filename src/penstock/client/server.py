"""A server as an object."""

from __future__ import annotations

import datetime as dt
import json
import queue
import re
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow as pa

from penstock.client.answers import (
    RemoteEvent,
    RemoteHealth,
    RemoteHeartbeat,
    RemotePosted,
    RemotePunctuation,
    RemoteRows,
    RemoteRunning,
    RemoteScript,
    RemoteStatement,
    catalog_of,
    command_of,
    heartbeat_of,
    posted_of,
    punctuation_of,
    query_of,
    running_of,
    script_of,
)
from penstock.client.connection import Connection
from penstock.client.rows import arrow_table, parts, stream_bytes
from penstock.client.selected import SelectedBatches
from penstock.client.subscription import QueryResults, RowSubscription, SubscribeText
from penstock.errors import PenstockError, check_columns, check_watched
from penstock.notebook.latest_rows import LatestRows
from penstock.notebook.plan_text import explained
from penstock.notebook.tables import Listed
from penstock.notebook.watching import Display, OneOutput, watch
from penstock.server_reports import CatalogView, CommandView, QueryView

# --- The rows of a subscription for who looks at them now and then: they are read in a thread of their own.

#: Batches that wait for who looks at them; the subscription waits then, and its rows wait at the server.
_MOST_WAITING = 100


class WatchedSubscription:
    """The rows of a subscription. See the contract `ComingRows`; an error of the subscription is raised by `next`."""

    def __init__(self, subscription: RowSubscription) -> None:
        self._subscription = subscription
        self._waiting: queue.Queue[pa.RecordBatch | Exception | None] = queue.Queue(_MOST_WAITING)
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="penstock-watch", daemon=True)
        self._thread.start()

    def next(self, seconds: float) -> pa.Table | None:
        """Return the rows that have come, which are waited for for at most so many seconds; None when no more come."""
        found: list[pa.RecordBatch] = []
        try:
            one = self._waiting.get(timeout=seconds)
            while True:
                if not isinstance(one, pa.RecordBatch):
                    # What has come before it is returned first.
                    self._waiting.put(one)
                    if found:
                        break
                    if one is None:
                        return None
                    raise one
                found.append(one)
                one = self._waiting.get_nowait()
        except queue.Empty:
            pass
        return pa.Table.from_batches(found) if found else pa.table({})

    def close(self) -> None:
        """End the subscription."""
        self._closed = True
        self._subscription.close()
        while self._thread.is_alive():
            try:
                self._waiting.get(timeout=0.05)
            except queue.Empty:
                continue

    def _read(self) -> None:
        end: Exception | None = None
        try:
            for batch in self._subscription:
                if self._closed:
                    return
                self._waiting.put(batch)
        except Exception as error:
            end = error
        if not self._closed:
            self._waiting.put(end)


#: What a notebook shows of queries and of statements that run.
_OF_QUERIES: dict[str, Callable[[QueryView], Any]] = {
    "name": lambda one: one.name,
    "state": lambda one: one.state,
    "kind": lambda one: one.kind,
    "rows": lambda one: one.rows,
    "instant": lambda one: one.instant,
    "result": lambda one: one.sink,
    "statement": lambda one: one.sql,
}
_OF_STATEMENTS: dict[str, Callable[[RemoteRunning], Any]] = {
    "id": lambda one: one.id,
    "kind": lambda one: one.kind,
    "began": lambda one: one.began,
    "who": lambda one: one.who,
    "statement": lambda one: one.sql,
}
T = TypeVar("T")

_SUBSCRIBES = re.compile(r"\s*SUBSCRIBE\b", re.IGNORECASE)
_ARROW = "application/vnd.apache.arrow.stream"
#: Formats of records that `post` takes.
#: How the types begin whose values a chart draws.
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_MEDIA = {"csv": "text/csv", "ndjson": "application/x-ndjson", "arrow": _ARROW}


def connect(
    url: str,
    token: str | None = None,
    *,
    patience: float = 30.0,
    certificates: str | None = None,
    timeout: float | None = 120.0,
) -> ServerClient:
    """Return a client of the server at `url`.

    Args:
        url: such as `http://127.0.0.1:8265`.
        token: as `penstock token add` prints it; None for a server that requires none.
        patience: seconds for which a server that is not reached is tried again.
        certificates: a PEM file of certificates to trust, for a server with one of its own.
        timeout: seconds in which an answer has to begin, None for any time; a subscription may always be silent.

    Raises:
        PenstockError: P0808 for an address that cannot be used.
    """
    return ServerClient(Connection(url, token, patience, certificates, timeout))


class ServerClient:
    """A server. As a context its connections are closed at the end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"ServerClient({self._connection.url})"

    def __enter__(self) -> ServerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    # -- statements --------------------------------------------------------------------------------------------

    def execute(
        self,
        sql: str,
        *,
        wait: bool = True,
        key: str | None = None,
        settings: Mapping[str, str] | None = None,
        dry: bool = False,
    ) -> RemoteScript:
        """Execute a script as a whole, once however often the connection is lost; return what each statement led to.

        Args:
            wait: whether commands have taken effect when this returns.
            key: the idempotency key; two calls with one key are one. Without it each call has its own.
            settings: of the session, as SET has them.
            dry: check only.

        Raises:
            ScriptErrors: for a script with errors; nothing of it is executed.
        """
        body = {"sql": _text(sql), "wait": wait, "settings": dict(settings or {}), "dry": dry}
        headers = {"Idempotency-Key": key or _new_key(), "Accept": "application/json", **self._connection.after}
        script = script_of(self._connection.json("POST", "/v1/statements", json=body, headers=headers))
        for statement in script:
            self._connection.added(statement.position)
        return script

    def apply(
        self,
        script: str,
        *,
        dry: bool = False,
        wait: bool = True,
        key: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> RemoteScript:
        """Bring the declarations to those of a script, all of them or none; return the statements of the difference,
        each with its text as `sql`. What the script does not have is dropped.

        Args:
            dry: only find the difference.
            wait, key, settings: as for `execute`.

        Raises:
            ScriptErrors: for a script with errors; nothing of it happens.
        """
        body = {"sql": _text(script), "wait": wait, "settings": dict(settings or {})}
        headers = {"Idempotency-Key": key or _new_key(), "Accept": "application/json"}
        params = {"dry": "true"} if dry else {}
        document = self._connection.json("PUT", "/v1/catalog", json=body, headers=headers, params=params)
        return script_of(document)

    def select(self, sql: str, *, settings: Mapping[str, str] | None = None) -> RemoteRows:
        """Return the rows of one SELECT. settings: of the session, as SET has them. Raises ScriptErrors."""
        request = {"sql": _text(sql), "settings": dict(settings or {})}

        def select() -> RemoteRows:
            with SelectedBatches(self._connection, request, own_pool=False) as rows:
                batches: list[pa.RecordBatch] = []
                with suppress(StopIteration):
                    while True:
                        batches.append(rows.next_batch())
                table = pa.Table.from_batches(batches, rows.schema)
                return RemoteRows(table, rows.instant, rows.staleness, rows.since, rows.notices)

        return self._selected(sql, select)

    def _selected(self, sql: str, select: Callable[[], T]) -> T:
        """Return the answer to one SELECT. Raises PenstockError P0803, with the method for other statements."""
        if _SUBSCRIBES.match(sql):
            raise PenstockError("P0803", "SUBSCRIBE is no SELECT", hint="follow(...) has its rows as they come")
        try:
            return self._connection.repeated(select)
        except PenstockError as error:
            if error.code == "P0803" and "and nothing of it was executed" in error.message:
                message = "this is no single SELECT, and nothing of it was executed"
                hint = "execute(...) executes scripts and commands"
                raise PenstockError("P0803", message, hint=hint) from None
            raise

    def select_batches(self, sql: str, *, settings: Mapping[str, str] | None = None) -> SelectedBatches:
        """Return the rows of one SELECT as an iterator of Arrow batches, of which one at a time is held. It has their
        `schema`, and `instant`, `staleness` and `since` as `select`. A connection that is lost on the way is an error,
        since the answer to the same question may be another one by then.

        Raises:
            ScriptErrors: as `select`.
        """
        request = {"sql": _text(sql), "settings": dict(settings or {})}
        return self._selected(sql, lambda: SelectedBatches(self._connection, request))

    # -- commands ----------------------------------------------------------------------------------------------

    def pause(self, query: str, *, with_state: bool = False) -> RemoteStatement:
        """Pause a query. with_state: it goes on and emits nothing, so that it can resume at any time."""
        return self._altered(query, "PAUSE WITH STATE" if with_state else "PAUSE")

    def resume(self, query: str, *, start: str | None = None, reset: bool = False) -> RemoteStatement:
        """Resume a query.

        Args:
            start: NOW, WARM, WARM WAIT, BEGINNING, or `AT '2024-03-01 09:00:00'`; without it WARM.
            reset: the result may begin again where its former content is not known.
        """
        words = ["RESUME", *(["START", start] if start else []), *(["RESET"] if reset else [])]
        return self._altered(query, " ".join(words))

    def rename(self, query: str, name: str) -> RemoteStatement:
        """Give a query another name."""
        return self._altered(query, f"RENAME TO {quoted_name(name)}")

    def drop(self, query: str, *, cascade: bool = False) -> RemoteStatement:
        """Drop a query. cascade: also drop all that reads it."""
        return self._one(f"DROP QUERY {quoted_name(query)}" + (" CASCADE" if cascade else ""))

    def _altered(self, query: str, action: str) -> RemoteStatement:
        return self._one(f"ALTER QUERY {quoted_name(query)} {action}")

    def _one(self, sql: str) -> RemoteStatement:
        """Execute one command. Raises PenstockError, also where it was accepted and has failed."""
        (statement,) = self.execute(sql)
        if statement.error is not None:
            raise statement.error
        return statement

    # -- what there is -----------------------------------------------------------------------------------------

    def queries(self) -> list[QueryView]:
        """Return the continuous queries."""
        found = (query_of(one) for one in self._connection.json("GET", "/v1/queries")["queries"])
        return Listed(found, _OF_QUERIES)

    def query(self, name: str) -> QueryView:
        """Return a continuous query. Raises PenstockError P0201."""
        path, named = _query_path(name)
        return query_of(self._connection.json("GET", path, params=named))

    def plan(self, query: str, form: str = "text") -> str:
        """Return the plan of a query. form: `text`, `json`, `mermaid` or `drawn` (SVG). Raises PenstockError
        P0201."""
        path, named = _query_path(query, "/plan")
        return explained(form, lambda each: self._connection.send("GET", path, params={**named, "format": each}).text)

    def statements(self) -> list[RemoteRunning]:
        """Return the one-time queries and subscriptions that run."""
        found = (running_of(one) for one in self._connection.json("GET", "/v1/statements")["statements"])
        return Listed(found, _OF_STATEMENTS)

    def cancel(self, statement: str) -> RemoteRunning:
        """End a one-time query or a subscription, by its id; return what it was. Raises PenstockError P0201, P0802."""
        return running_of(self._connection.json("DELETE", f"/v1/statements/{_segment(str(statement))}"))

    def catalog(self, *, timeout: float | None = None) -> CatalogView:
        """Return all that is declared. timeout: seconds in which the answer has to begin; None: that of `connect`."""
        request = {} if timeout is None else {"timeout": timeout}
        return catalog_of(self._connection.json("GET", "/v1/catalog", **request))

    def health(self) -> RemoteHealth:
        """Return whether the server processes batches; one that does not answer is an error."""
        document = self._connection.json("GET", "/readyz", refusals=frozenset({503}))
        ready = document["status"] == "ok"
        return RemoteHealth(ready, document["problem"], document["version"], document["batch"])

    def metrics(self) -> str:
        """Return the metrics in the text format of Prometheus."""
        return self._connection.send("GET", "/metrics").text

    def events(self) -> Iterator[RemoteEvent]:
        """Yield an event for each batch, command and change of state from now on, without end.

        Raises:
            PenstockError: P0808 when the connection is lost, since events of the meantime would be missing.
        """
        kind, data = "", ""
        for line in self._connection.lines("/v1/events"):
            name, _, value = line.partition(":")
            if name == "event":
                kind = value.strip()
            elif name == "data":
                data += value.strip()
            elif not line and data:
                yield RemoteEvent(kind, json.loads(data))
                kind, data = "", ""

    def commands(self, after: int = 0) -> Iterator[CommandView]:
        """Yield the commands with numbers beyond `after`, in their order."""
        while True:
            document = self._connection.json("GET", "/v1/commands", params={"after": after, "limit": 1_000})
            if not document["commands"]:
                return
            for one in document["commands"]:
                after = one["number"]
                yield command_of(one)

    def command(self, number: int) -> CommandView:
        """Return a command. Raises PenstockError P0201."""
        return command_of(self._connection.json("GET", f"/v1/commands/{number}"))

    # -- rows --------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        query: str,
        *,
        cursor: str | None = None,
        beginning: bool = False,
        snapshot: bool = False,
        progress: bool = False,
        until_now: bool = False,
        patience: float | None = None,
        on_lost: Callable[[Exception], None] | None = None,
    ) -> RowSubscription:
        """Return the results of a query as an iterator of Arrow batches, which continues after lost connections.

        Args:
            cursor: `cursor` of an earlier subscription, behind which to continue; without one from now on.
            beginning: begin with the first rows that are kept.
            snapshot: begin with the present content, as rows with op `+`.
            progress: rows with op `p` report up to which instant the answer is final.
            until_now: end with what there is.
            patience: seconds for which a server that is lost is tried again; without it that of the client.
            on_lost: is called with the reason each time before it is tried again.

        Raises:
            PenstockError: P0201 for an unknown query, P0712 for rows that are no longer kept, at the first batch.
        """
        if re.match(r"\s*(SELECT|SUBSCRIBE)\s", query, re.IGNORECASE):
            hint = "follow('SUBSCRIBE TO (SELECT ...)') has the rows of a query that is not declared"
            raise PenstockError("P0201", "subscribe takes the name of a query, not its text", hint=hint)
        chosen = {"snapshot": snapshot, "progress": progress}
        params = {name: "true" for name, value in chosen.items() if value} | {"format": "arrow"}
        if until_now:
            params["until"] = "now"
        if beginning:
            params["from"] = "beginning"
        path, named = _query_path(query, "/results")
        return RowSubscription(self._connection, QueryResults(path, {**named, **params}), cursor, patience, on_lost)

    def watch(
        self,
        query: str,
        *,
        seconds: float | None = None,
        every: float = 0.5,
        rows: int = 20,
        value: str | None = None,
        by: str | None = None,
        display: Display | None = None,
    ) -> None:
        """Show the results of a query in a notebook, those that are kept and then those that come: the content of a
        relation, the newest rows of a stream, and a chart. Elsewhere lines are printed. The query goes on when the cell
        is interrupted.

        Args:
            seconds: after which it ends; None: when the cell is interrupted.
            every: seconds between two updates at least.
            rows: how many are shown.
            value, by: columns of the chart: the number, and what has a line each.
            display: shows the output in place of the notebook.

        Raises:
            PenstockError: P0201 for an unknown query, P0202 for a column that it has not, P0712.
        """
        known = self.query(query)
        columns = known.columns[1 if known.is_stream else 2 :]
        check_columns((value, by), (name for name, _ in columns))
        numbers = [name for name, type_ in columns if type_.startswith(_NUMBERS)]
        check_watched(seconds, every, rows, value, numbers)
        latest, display = LatestRows(not known.is_stream, True, rows, value, by), OneOutput(display)
        try:
            # Of a stream the rows that are kept come first, of a relation its content.
            first = self.subscribe(known.name, snapshot=latest.is_relation, beginning=known.is_stream)
            self._watch(known, first, latest, seconds, every, display)
        except PenstockError as error:
            if error.code != "P0711" or latest.count:
                raise
            # It keeps no contents: they follow from the rows of the result.
            self._watch(known, self.subscribe(known.name, beginning=True), latest, seconds, every, display)

    def _watch(
        self,
        query: QueryView,
        subscription: RowSubscription,
        rows: LatestRows,
        seconds: float | None,
        every: float,
        display: Display | None,
    ) -> None:
        source = WatchedSubscription(subscription)
        try:
            watch(query.name, source, rows, seconds, every, display)
        finally:
            source.close()

    def follow(
        self,
        sql: str,
        *,
        cursor: str | None = None,
        settings: Mapping[str, str] | None = None,
        patience: float | None = None,
        on_lost: Callable[[Exception], None] | None = None,
    ) -> RowSubscription:
        """Return the results of a SUBSCRIBE statement, as `subscribe` does.

        Raises:
            PenstockError: P0803 for a SELECT.
            ScriptErrors: at the first batch, as for `execute`.
        """
        if re.match(r"\s*(SELECT|WITH)\b", _text(sql), re.IGNORECASE):
            raise PenstockError("P0803", "this is no SUBSCRIBE", hint="select(...) has the rows of a SELECT")
        request = SubscribeText(sql, dict(settings or {}))
        return RowSubscription(self._connection, request, cursor, patience, on_lost)

    def insert(self, stream: str, rows: object, *, key: str | None = None) -> int:
        """Add rows to a stream or relation FROM HTTP or MEMORY; return their number. They are durable then, and added
        once however often the connection is lost.

        Args:
            rows: an Arrow table or batch, a pandas or Polars DataFrame, or dictionaries; no dictionaries are no rows.
            key: the idempotency key; two calls with one key and the same rows are one.

        Warns:
            UserWarning: rows came late, as far as that is known; and what else is to be known of them.
        """
        key, table = key or _new_key(), arrow_table(rows)
        added = late = 0
        notices: dict[str, None] = {}
        # A list without dictionaries has no columns that could be wrong.
        for number, part in enumerate(parts(table) if table.column_names else ()):
            posted = self.post(stream, stream_bytes(part), "arrow", key=f"{key}.{number}")
            added, late = added + posted.rows, late + (posted.late or 0)
            notices |= dict.fromkeys(posted.notices)
        if late:
            message = (
                f"{late:,} of {added:,} rows of {stream} came late and are in no result: ORDER WITHIN waits for such"
            )
            warnings.warn(message, stacklevel=2)
        for notice in notices:
            warnings.warn(notice, stacklevel=2)
        return added

    def post(
        self, stream: str, body: bytes, form: str, *, key: str | None = None, unknown: str = "refuse"
    ) -> RemotePosted:
        """Add records as they are; malformed ones are left out and reported.

        Args:
            form: `csv` with a head, `ndjson`, or `arrow`, an IPC stream.
            key: the idempotency key, as for `insert`.
            unknown: `refuse` or `ignore` keys that are no column.
        """
        media = _MEDIA.get(form)
        if media is None:
            raise PenstockError("P0803", f"records of the format {form} cannot be posted", hint=", ".join(_MEDIA))
        headers = {"Content-Type": media, "Idempotency-Key": key or _new_key()}
        path = f"/v1/streams/{_segment(stream)}/rows"
        params = {} if unknown == "refuse" else {"unknown": unknown}
        posted = posted_of(self._connection.json("POST", path, content=_records(body), headers=headers, params=params))
        self._connection.added(posted.position)
        return posted

    def stream(self, name: str) -> RemoteStream:
        """Return a stream to write to. Nothing is sent."""
        return RemoteStream(self, name)

    def _advance(self, stream: str, ts: dt.datetime | str | int, key: str | None) -> RemoteHeartbeat:
        if not isinstance(ts, dt.datetime | str | int) or isinstance(ts, bool):
            hint = "a datetime, a text such as '2026-01-31T12:00:00Z', or a number of ticks"
            raise PenstockError("P0203", f"a heartbeat has a timestamp, not {type(ts).__name__}", hint=hint)
        headers = {"Idempotency-Key": key or _new_key()}
        path = f"/v1/streams/{_segment(stream)}/heartbeat"
        body = {"ts": ts.isoformat() if isinstance(ts, dt.datetime) else ts}
        found = heartbeat_of(self._connection.json("POST", path, json=body, headers=headers))
        self._connection.added(found.position)
        return found

    def _punctuate(self, stream: str, where: object, key: str | None) -> RemotePunctuation:
        if not isinstance(where, str):
            hint = "a text such as 'auction = 17'"
            raise PenstockError("P0203", f"a punctuation is a text, not {type(where).__name__}", hint=hint)
        headers = {"Idempotency-Key": key or _new_key()}
        path = f"/v1/streams/{_segment(stream)}/punctuations"
        found = punctuation_of(self._connection.json("POST", path, json={"where": where}, headers=headers))
        self._connection.added(found.position)
        return found


class RemoteStream:
    """A stream of a server.

    Args:
        name: of the stream.
    """

    def __init__(self, server: ServerClient, name: str) -> None:
        self._server = server
        self.name = name

    def __repr__(self) -> str:
        return f"RemoteStream({self.name!r})"

    def insert(self, rows: object, *, key: str | None = None) -> int:
        """Add rows; see `ServerClient.insert`."""
        return self._server.insert(self.name, rows, key=key)

    def heartbeat(self, ts: dt.datetime | str | int, *, key: str | None = None) -> RemoteHeartbeat:
        """Promise that no element up to a timestamp follows: what is posted later and is not above it is late. It is
        durable then, and added once however often the connection is lost.

        Args:
            ts: a datetime or its text, UTC where it has no zone; of a stream stamped by integers one of these.
            key: the idempotency key.

        Raises:
            PenstockError: P0102 for another timestamp, P0201, P0380 for a source without heartbeats and for a heartbeat
                that is too far ahead.
        """
        return self._server._advance(self.name, ts, key)

    def punctuate(self, where: str, *, key: str | None = None) -> RemotePunctuation:
        """Promise that no element follows that fulfils a condition: one that is posted later becomes a dead letter. It
        is durable then, and added once however often the connection is lost.

        Args:
            where: a conjunction of comparisons of columns with constants, as in `auction = 17 AND bid <= 5`.
            key: the idempotency key.

        Raises:
            PenstockError: P0101, P0201, P0202, P0203, P0380 for a relation, P0381 for another condition, P0804 where
                the stream keeps too many.
        """
        return self._server._punctuate(self.name, where, key)


def quoted_name(name: str) -> str:
    """Return a name as it is written in a statement, whatever its letters."""
    return "`" + name.replace("`", "``") + "`"


def _text(script: object) -> str:
    """Return a script. Raises PenstockError P0203 for what is no text."""
    if not isinstance(script, str):
        hint = "path.read_text() is the text of a file" if isinstance(script, PurePath) else None
        raise PenstockError("P0203", f"a script is a text, not {type(script).__name__}", hint=hint)
    return script


def _records(body: object) -> bytes:
    """Return the records of a post. Raises PenstockError P0203 for what is none of bytes."""
    if not isinstance(body, bytes | bytearray | memoryview):
        hint = "text.encode() makes bytes of a text; insert(...) takes dictionaries and tables"
        raise PenstockError("P0203", f"the records of a post are bytes, not {type(body).__name__}", hint=hint)
    return bytes(body)


def _new_key() -> str:
    return uuid.uuid4().hex


def _segment(name: str) -> str:
    """Return a name as a part of a path."""
    if not name:
        raise PenstockError("P0201", "a name cannot be empty")
    # A path is freed from `.` and `..` before it is sent, unless they are written otherwise.
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _query_path(name: str, below: str = "") -> tuple[str, dict[str, str]]:
    """Return the address of a query, or of what is below it, and the parameter that has its name where no path can."""
    return (f"/v1/queries/-{below}", {"name": name}) if "/" in name else (f"/v1/queries/{_segment(name)}{below}", {})
