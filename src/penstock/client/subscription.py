"""A subscription as an iterator of Arrow batches that survives lost connections.

Each batch carries a cursor; after a lost connection the subscription continues behind the last one, so every row comes
once. Rows that the server no longer keeps by then are an error (P0712), never a gap.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from penstock.client.answers import error_of
from penstock.client.bodies import arrow_file
from penstock.client.connection import LOST, Connection, hanging_up, pauses
from penstock.client.lost import plain_reason
from penstock.errors import PenstockError

_ARROW = "application/vnd.apache.arrow.stream"
_CURSOR = "penstock-cursor"


class ResultsRequest(Protocol):
    """A request for the results of a query."""

    @property
    def ends(self) -> bool:
        """Whether the end of an answer is the end of the results; otherwise the next answer has the reason."""

    @property
    def has_snapshot(self) -> bool: ...

    def arguments(self, cursor: str | None) -> dict[str, Any]:
        """Return the arguments of the request that continues behind a cursor."""


@dataclass(frozen=True)
class QueryResults:
    """`GET` of the results of a query. params: of the request, beside the cursor."""

    path: str
    params: Mapping[str, str]

    @property
    def ends(self) -> bool:
        return "until" in self.params

    @property
    def has_snapshot(self) -> bool:
        return "snapshot" in self.params

    def arguments(self, cursor: str | None) -> dict[str, Any]:
        params = dict(self.params)
        if cursor is not None:
            params["from"] = cursor
            params.pop("snapshot", None)
        return {"method": "GET", "path": self.path, "params": params}


@dataclass(frozen=True)
class SubscribeText:
    """A SUBSCRIBE statement. settings: of the session."""

    sql: str
    settings: Mapping[str, str]
    ends: bool = True
    #: The answer has the cursor where the subscription begins, unless it begins with a snapshot.
    has_snapshot: bool = False

    def arguments(self, cursor: str | None) -> dict[str, Any]:
        headers = {} if cursor is None else {"Last-Event-ID": cursor}
        body = {"sql": self.sql, "settings": dict(self.settings)}
        return {"method": "POST", "path": "/v1/statements", "json": body, "headers": headers}


class RowSubscription(Iterator[pa.RecordBatch]):
    """Rows of a query as they come: `ts`, `op`, and its columns.

    Args:
        request: the request to the server.
        patience: seconds for which a lost server is tried again; None: that of the connection.
        on_lost: is called with the reason each time before the server is tried again.
    """

    def __init__(
        self,
        connection: Connection,
        request: ResultsRequest,
        cursor: str | None,
        patience: float | None = None,
        on_lost: Callable[[Exception], None] | None = None,
    ) -> None:
        self._connection = connection
        self._request = request
        self._patience = connection.patience if patience is None else patience
        self._on_lost = on_lost
        #: Continues behind the last batch; None before the server has sent where the subscription begins.
        self.cursor = cursor
        #: Whether batches have come since the last cursor.
        self._between = False
        self._closed = Event()
        self._hang_up: Callable[[], None] | None = None
        self._batches = self._read()

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """End the subscription; the next batch is none. Also while another thread waits for one."""
        self._closed.set()
        hang_up = self._hang_up
        if hang_up is not None:
            hang_up()
        with suppress(ValueError):  # another thread is in the generator, and finds the connection broken off
            self._batches.close()

    def __enter__(self) -> RowSubscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> Generator[pa.RecordBatch, None, None]:
        attempts, end = pauses(), time.monotonic() + self._patience
        while not self._closed.is_set():
            try:
                for batch in self._one():
                    attempts, end = pauses(), time.monotonic() + self._patience
                    yield batch
                if self._request.ends:
                    return
                # The server has ended the answer; the next one has the reason.
                time.sleep(next(attempts))
            except (*LOST, pa.ArrowInvalid, OSError) as error:
                if self._closed.is_set():
                    return
                if self._between:
                    message = "the connection was lost within a snapshot, whose rows cannot be continued"
                    raise PenstockError("P0808", message, hint="subscribe again", cause=error) from None
                if self._on_lost is not None:
                    self._on_lost(plain_reason(error))
                self._connection.wait(next(attempts), end, error)

    def _one(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one connection."""
        with self._connection.stream(accept=_ARROW, **self._request.arguments(self.cursor)) as answer:
            self._hang_up = hanging_up(answer)
            if self._closed.is_set():
                return
            if self.cursor is None and not self._request.has_snapshot:
                self.cursor = answer.headers.get(_CURSOR)
            reader = pa.ipc.open_stream(arrow_file(answer.iter_bytes()))
            while True:
                try:
                    batch, metadata = reader.read_next_batch_with_custom_metadata()
                except StopIteration:
                    return
                if metadata is not None and (problem := metadata.get(b"error")) is not None:
                    raise error_of(json.loads(problem))
                cursor = None if metadata is None else metadata.get(b"cursor")
                self._between = cursor is None
                if cursor is not None:
                    self.cursor = cursor.decode()
                yield batch
