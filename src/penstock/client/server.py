"""A server as an object."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from penstock.client.answers import (
    RemoteCommand,
    RemoteQuery,
    RemoteRows,
    RemoteStatement,
    command_of,
    outcome_of,
    query_of,
)
from penstock.client.connection import Connection
from penstock.client.subscription import RowSubscription
from penstock.errors import PenstockError

_ARROW = "application/vnd.apache.arrow.stream"
#: Bytes of rows that one request posts.
_PART_BYTES = 8 * 2**20


def connect(
    url: str, token: str | None = None, *, patience: float = 30.0, certificates: str | None = None
) -> ServerClient:
    """Return a client of the server at `url`.

    Args:
        url: such as `http://127.0.0.1:8265`.
        token: as `penstock token add` prints it; None for a server that requires none.
        patience: seconds for which a server that is not reached is tried again.
        certificates: a PEM file of certificates to trust, for a server with one of its own.

    Raises:
        PenstockError: P0808 for an address that cannot be used.
    """
    return ServerClient(Connection(url, token, patience, certificates))


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
        self, sql: str, *, wait: bool = True, key: str | None = None, settings: Mapping[str, str] | None = None,
        dry: bool = False,
    ) -> tuple[RemoteStatement, ...]:  # fmt: skip
        """Execute a script as a whole, once however often the connection is lost; return what each statement led to.

        Args:
            wait: whether commands have taken effect when this returns.
            key: the idempotency key; two calls with one key are one. Without it each call has its own.
            settings: of the session, as SET has them.
            dry: check only.

        Raises:
            ScriptErrors: for a script with errors; nothing of it is executed.
        """
        body = {"sql": sql, "wait": wait, "settings": dict(settings or {}), "dry": dry}
        headers = {"Idempotency-Key": key or _new_key(), "Accept": "application/json"}
        document = self._connection.json("POST", "/v1/statements", json=body, headers=headers)
        return tuple(outcome_of(one) for one in document["statements"])

    def select(self, sql: str) -> RemoteRows:
        """Return the rows of one SELECT. Raises ScriptErrors."""
        answer = self._connection.send("POST", "/v1/statements", json={"sql": sql}, headers={"Accept": _ARROW})
        with pa.ipc.open_stream(answer.content) as reader:
            return RemoteRows(reader.read_all(), answer.headers.get("penstock-instant"))

    # -- what there is -----------------------------------------------------------------------------------------

    def queries(self) -> list[RemoteQuery]:
        """Return the continuous queries."""
        return [query_of(one) for one in self._connection.json("GET", "/v1/queries")["queries"]]

    def query(self, name: str) -> RemoteQuery:
        """Return a continuous query. Raises PenstockError P0201."""
        return query_of(self._connection.json("GET", f"/v1/queries/{_segment(name)}"))

    def commands(self, after: int = 0) -> Iterator[RemoteCommand]:
        """Yield the commands with numbers beyond `after`, in their order."""
        while True:
            document = self._connection.json("GET", "/v1/commands", params={"after": after, "limit": 1_000})
            if not document["commands"]:
                return
            for one in document["commands"]:
                after = one["number"]
                yield command_of(one)

    def command(self, number: int) -> RemoteCommand:
        """Return a command. Raises PenstockError P0201."""
        return command_of(self._connection.json("GET", f"/v1/commands/{number}"))

    # -- rows --------------------------------------------------------------------------------------------------

    def subscribe(
        self, query: str, *, cursor: str | None = None, beginning: bool = False, snapshot: bool = False,
        progress: bool = False, until_now: bool = False,
    ) -> RowSubscription:  # fmt: skip
        """Return the results of a query as an iterator of Arrow batches, which continues after lost connections.

        Args:
            cursor: `cursor` of an earlier subscription, behind which to continue; without one from now on.
            beginning: begin with the first rows that are kept.
            snapshot: begin with the present content, as rows with op `+`.
            progress: rows with op `p` report up to which instant the answer is final.
            until_now: end with what there is.

        Raises:
            PenstockError: P0201 for an unknown query, P0712 for rows that are no longer kept, at the first batch.
        """
        chosen = {"snapshot": snapshot, "progress": progress}
        params = {name: "true" for name, value in chosen.items() if value} | {"format": "arrow"}
        if until_now:
            params["until"] = "now"
        if beginning:
            params["from"] = "beginning"
        return RowSubscription(self._connection, f"/v1/queries/{_segment(query)}/results", params, cursor)

    def insert(self, stream: str, rows: Any, *, key: str | None = None) -> int:
        """Add rows to a stream or relation FROM HTTP or MEMORY; return their number. They are durable then, and added
        once however often the connection is lost.

        Args:
            rows: an Arrow table or batch, a pandas or Polars DataFrame, or dictionaries.
            key: the idempotency key; two calls with one key and the same rows are one.
        """
        table = _arrow(rows)
        key = key or _new_key()
        path = f"/v1/streams/{_segment(stream)}/rows"
        added = 0
        for number, part in enumerate(_parts(table)):
            headers = {"Content-Type": _ARROW, "Idempotency-Key": f"{key}.{number}"}
            added += int(self._connection.json("POST", path, content=_stream(part), headers=headers)["rows"])
        return added


def _new_key() -> str:
    return uuid.uuid4().hex


def _segment(name: str) -> str:
    """Return a name as a part of a path."""
    if not name:
        raise PenstockError("P0201", "a name cannot be empty")
    return quote(name, safe="")


def _arrow(rows: Any) -> pa.Table:
    """Return rows of any kind as an Arrow table of plain columns."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    elif isinstance(rows, Sequence | Iterator) or (isinstance(rows, Iterable) and not hasattr(rows, "columns")):
        rows = pa.Table.from_pylist([dict(row) for row in rows])
    elif not isinstance(rows, pa.Table):
        try:
            rows = pa.table(rows)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise PenstockError(
                "P0203", f"{type(rows).__name__} cannot be posted as rows: {error}", cause=error
            ) from None
    return pa.table([_plain(column) for column in rows.columns], names=rows.column_names)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary or views, which a server does not accept."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _plain(column.cast(type_.value_type))
    if pa.types.is_string_view(type_):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(type_) else column


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the table in pieces of bounded size; one piece where it is empty."""
    rows = max(1, int(table.num_rows * _PART_BYTES / max(table.nbytes, 1)))
    for start in range(0, max(table.num_rows, 1), rows):
        yield table.slice(start, rows)


def _stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
