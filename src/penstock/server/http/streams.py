"""Rows as they come, in the format that the caller prefers.

A subscription reads on only when its caller has taken what was sent, so a slow one holds one small part in memory. A
stream that cannot continue ends with the error: SSE by an event `error`, NDJSON by a line `{"error": ...}`, Arrow by
the metadata `error` of a last batch without rows; CSV breaks off, and the next request with the last cursor is answered
with the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Literal, TypeVar

from fastapi import Request, Response
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import StreamingResponse

from penstock.errors import PenstockError
from penstock.results.result_source import EndOfResults, ResultPart, ResultSource
from penstock.server.http.door import CountedRequest, HttpDoor, Interrupted, at_end
from penstock.server.http.formats import ArrowWriter, BodyFormat, csv_lines, dumped, json_array, json_lines
from penstock.server.http.problems import problem_document, status_of

T = TypeVar("T")

#: The formats of rows that come.
STREAMED = (BodyFormat.SSE, BodyFormat.NDJSON, BodyFormat.ARROW, BodyFormat.CSV)
StreamedFormat = Literal["sse", "ndjson", "arrow", "csv"]
#: Seconds that a subscription waits for rows before it looks whether the server ends.
WAIT = 1.0
#: Seconds between comments of a quiet stream of events.
PING = 15


async def stream_response(door: HttpDoor, source: ResultSource, form: BodyFormat, cursors: bool = False) -> Response:
    """Return a response with the rows of a subscription as they come.

    Args:
        cursors: NDJSON: whether lines with cursors come between.

    Raises:
        PenstockError: that of the first rows, where there are some already.
    """
    stream = _Stream(door, source)
    await stream.open()
    headers = {} if source.cursor is None else {"Penstock-Cursor": source.cursor}
    if form is BodyFormat.SSE:
        return EventSourceResponse(_sse(stream), headers=headers, ping=PING)
    body = _ndjson(stream, cursors) if form is BodyFormat.NDJSON else _binary(stream, form)
    return StreamingResponse(body, headers=headers, media_type=form.media)


class _Stream:
    """The parts of a subscription."""

    def __init__(self, door: HttpDoor, source: ResultSource) -> None:
        self._door = door
        self._source = source
        self._first: ResultPart | None = None
        self._ended = False
        self.schema = source.schema

    async def open(self) -> None:
        """Read the first part if there is one already, so that an error of it still has a status of its own."""
        try:
            self._first = await self._door.reading(lambda: self._source.next(0))
        except EndOfResults:
            self._ended = True

    async def parts(self) -> AsyncGenerator[ResultPart, None]:
        """Yield the parts until the subscription ends. Raises Interrupted when the server ends before.

        A part that has been yielded is not kept here: it would stay for as long as a slow caller does not read on.
        """
        waiting = [] if self._first is None else [self._first]
        self._first = None
        changes = _Changes(self._source)
        try:
            while waiting or not self._ended:
                if waiting:
                    yield waiting.pop()
                    continue
                if self._door.closing.is_set():
                    raise Interrupted
                found = await self._next(changes)
                if found is not None:
                    waiting.append(found)
                del found
        finally:
            changes.end()

    async def _next(self, changes: _Changes) -> ResultPart | None:
        """Return the next part, None where there is none soon. The wait needs no thread where the source reports when
        it changes."""
        try:
            if not changes.listen():
                return await self._door.streaming(lambda: self._source.next(WAIT))
            found = await self._door.reading(lambda: self._source.next(0))
        except EndOfResults:
            self._ended = True
            return None
        if found is None:
            await changes.wait(WAIT)
        return found


class _Changes:
    """The changes of a subscription, for the loop of events."""

    def __init__(self, source: ResultSource) -> None:
        self._source = source
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._end: Callable[[], None] | None = None

    def listen(self) -> bool:
        """Return whether the source reports when it changes. Its reports from here on are not missed by `wait`."""
        self._changed.clear()
        if self._end is None:
            self._end = self._source.on_change(self._notify)
        return self._end is not None

    def _notify(self) -> None:
        # A loop that has been closed has no more subscriptions.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self, seconds: float) -> None:
        """Wait for a change, at most so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def end(self) -> None:
        if self._end is not None:
            self._end()


async def _each(stream: _Stream, encoded: Callable[[ResultPart], T]) -> AsyncIterator[T]:
    """Yield the parts as they are sent; no part is kept while a caller does not read on."""
    waiting: list[T] = []
    async for part in stream.parts():
        waiting.append(encoded(part))
        del part
        yield waiting.pop()


async def _sse(stream: _Stream) -> AsyncIterator[ServerSentEvent]:
    def event(part: ResultPart) -> ServerSentEvent:
        rows = json_array(part.rows).decode("utf-8", "backslashreplace")
        return ServerSentEvent(rows, event="rows", id=part.cursor or None)

    try:
        async for one in _each(stream, event):
            yield one
    except PenstockError as error:
        yield ServerSentEvent(_problem_line(error).decode(), event="error")


async def _ndjson(stream: _Stream, cursors: bool) -> AsyncIterator[bytes]:
    def lines(part: ResultPart) -> bytes:
        cursor = dumped({"cursor": part.cursor}) + b"\n" if cursors and part.cursor else b""
        return json_lines(part.rows) + cursor

    try:
        async for one in _each(stream, lines):
            yield one
    except PenstockError as error:
        yield b'{"error":' + _problem_line(error) + b"}\n"


async def _binary(stream: _Stream, form: BodyFormat) -> AsyncIterator[bytes]:
    if form is BodyFormat.CSV:
        yield csv_lines(stream.schema.empty_table(), head=True)
        async for lines in _each(stream, lambda part: csv_lines(part.rows, head=False)):
            yield lines
        return
    writer = ArrowWriter(stream.schema)
    yield writer.head()
    try:
        async for batch in _each(stream, lambda part: writer.batch(part.rows, part.cursor)):
            yield batch
    except PenstockError as error:
        yield writer.error(_problem_line(error), stream.schema)
    yield writer.end()


def _problem_line(error: PenstockError) -> bytes:
    return dumped(problem_document(error, status_of(error)))


def opened(request: Request, door: HttpDoor) -> None:
    """Count a request as a subscription until it ends. Raises Busy beyond the limit."""
    door.open_stream()
    at_end(request, door.close_stream)
    counted: CountedRequest = request.scope["state"]["counted"]
    counted.end()
