"""The rows of a one-time query as they come, batch by batch, so that an answer of any size needs little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import pyarrow as pa

from penstock.client.answers import rows_of
from penstock.client.bodies import arrow_file
from penstock.client.connection import LOST, Connection
from penstock.client.lost import reason_of
from penstock.errors import PenstockError

_ARROW = "application/vnd.apache.arrow.stream"


class SelectedBatches(Iterator[pa.RecordBatch]):
    """The rows of one SELECT, as an iterator of Arrow batches. As a context its connection is closed at the end.

    Args:
        request: the arguments of the request.
        own_pool: as of `Connection.answered`.

    Raises:
        PenstockError: for an error of the server, P0808 for an answer that is no Arrow stream.
        LOST: for a connection that cannot be opened.
    """

    def __init__(self, connection: Connection, request: Mapping[str, Any], own_pool: bool = True) -> None:
        self._url = connection.url
        with ExitStack() as opened:
            answer = opened.enter_context(
                connection.answered("POST", "/v1/statements", _ARROW, own_pool=own_pool, json=dict(request))
            )
            try:
                self._reader = pa.ipc.open_stream(arrow_file(answer.iter_bytes()))
            except pa.ArrowInvalid as error:
                raise _no_arrow(self._url, error) from None
            #: The columns.
            self.schema: pa.Schema = self._reader.schema
            described = rows_of(self.schema.empty_table(), answer.headers)
            #: As of `RemoteRows`.
            self.instant, self.staleness, self.since = described.instant, described.staleness, described.since
            self.notices = described.notices
            self._is_closed = False
            self._opened = opened.pop_all()

    def __next__(self) -> pa.RecordBatch:
        try:
            return self.next_batch()
        except LOST as error:
            message = f"the connection to {self._url} was lost in the midst of an answer: {reason_of(error)}"
            raise PenstockError("P0808", message, hint="ask again", cause=error) from None

    def next_batch(self) -> pa.RecordBatch:
        """Return the next batch. Raises StopIteration, LOST, PenstockError."""
        if self._is_closed:
            raise StopIteration
        try:
            return self._reader.read_next_batch()
        except pa.ArrowInvalid as error:
            self.close()
            raise _no_arrow(self._url, error) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the answer; the next batch is none."""
        self._is_closed = True
        self._opened.close()

    def __enter__(self) -> SelectedBatches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _no_arrow(url: str, error: Exception) -> PenstockError:
    return PenstockError("P0808", f"the answer of {url} is no Arrow stream", cause=error)
