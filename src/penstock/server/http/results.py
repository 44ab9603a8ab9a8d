"""`GET /v1/queries/{q}/results` and `GET /v1/events`: rows and events as they come.

A subscription reads on only when its caller has taken what was sent, so a slow one holds nothing in memory. A stream
that cannot continue ends with the error: SSE by an event `error`, NDJSON by a line `{"error": ...}`; CSV and Arrow
break off, and the next request with the last cursor is answered with the error.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import StreamingResponse

from penstock.errors import PenstockError
from penstock.server.http.documents import Problem
from penstock.server.http.door import HttpDoor, Interrupted, at_end, caller_of, door_of
from penstock.server.http.formats import (
    ArrowWriter,
    BodyFormat,
    chosen,
    csv_lines,
    dumped,
    json_array,
    json_lines,
    media_of,
    named,
)
from penstock.server.http.problems import problem_document, status_of
from penstock.server.http.queries import Name
from penstock.server.roles import AccessRole
from penstock.server.service import EndOfResults, ResultPart, ResultRequest, ResultSource

router = APIRouter(responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}})

_OFFERED = (BodyFormat.SSE, BodyFormat.NDJSON, BodyFormat.ARROW, BodyFormat.CSV)
#: Seconds that a thread waits for rows before it looks whether the server ends.
_WAIT = 1.0
#: Seconds between comments of a quiet stream of events.
_PING = 15
_RESULT_FORMATS = Literal["sse", "ndjson", "arrow", "csv"]
Cursor = Annotated[str | None, Query(alias="from", max_length=1_000, description="A cursor, `beginning` or `now`.")]


@router.get(
    "/v1/queries/{query:path}/results",
    tags=["queries"],
    response_class=Response,
    responses={200: {"content": media_of(_OFFERED)}},
)
async def results(
    request: Request,
    query: Name,
    cursor: Cursor = None,
    snapshot: Annotated[bool, Query(description="Whether the present content comes first.")] = False,
    progress: Annotated[bool, Query(description="Whether rows `p` report the time that is final.")] = False,
    until: Annotated[Literal["now"] | None, Query(description="`now`: end with what there is.")] = None,
    cursors: Annotated[bool, Query(description="NDJSON: whether lines with cursors come between.")] = False,
    format: Annotated[_RESULT_FORMATS | None, Query()] = None,  # noqa: A002 - the parameter's name
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=1_000)] = None,
) -> Response:
    """Return the results of a query from a cursor on, as they come."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read results")
    form = named(format, _OFFERED) if format else chosen(request.headers.get("accept"), _OFFERED)
    place = last_event_id or cursor
    beginning = place == "beginning"
    wanted = ResultRequest(
        query, None if place in (None, "now", "beginning") else place, beginning, snapshot, progress, until == "now"
    )
    opened(request, door)
    source = await door.streaming(lambda: door.service.results(wanted))
    at_end(request, source.close)
    stream = _Stream(door, source)
    await stream.open()
    headers = {} if source.cursor is None else {"Penstock-Cursor": source.cursor}
    if form is BodyFormat.SSE:
        return EventSourceResponse(_sse(stream), headers=headers, ping=_PING)
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
            self._first = await self._door.streaming(lambda: self._source.next(0))
        except EndOfResults:
            self._ended = True

    async def parts(self) -> AsyncGenerator[ResultPart, None]:
        """Yield the parts until the subscription ends. Raises Interrupted when the server ends before."""
        if self._first is not None:
            part, self._first = self._first, None
            yield part
        while not self._ended:
            if self._door.closing.is_set():
                raise Interrupted
            try:
                found = await self._door.streaming(lambda: self._source.next(_WAIT))
            except EndOfResults:
                return
            if found is not None:
                yield found


async def _sse(stream: _Stream) -> AsyncIterator[ServerSentEvent]:
    try:
        async for part in stream.parts():
            rows = json_array(part.rows).decode("utf-8", "backslashreplace")
            yield ServerSentEvent(rows, event="rows", id=part.cursor or None)
    except PenstockError as error:
        yield ServerSentEvent(_problem_line(error).decode(), event="error")


async def _ndjson(stream: _Stream, cursors: bool) -> AsyncIterator[bytes]:
    try:
        async for part in stream.parts():
            yield json_lines(part.rows)
            if cursors and part.cursor:
                yield dumped({"cursor": part.cursor}) + b"\n"
    except PenstockError as error:
        yield b'{"error":' + _problem_line(error) + b"}\n"


async def _binary(stream: _Stream, form: BodyFormat) -> AsyncIterator[bytes]:
    if form is BodyFormat.CSV:
        yield csv_lines(stream.schema.empty_table(), head=True)
        async for part in stream.parts():
            yield csv_lines(part.rows, head=False)
        return
    writer = ArrowWriter(stream.schema)
    yield writer.head()
    async for part in stream.parts():
        yield writer.batch(part.rows, part.cursor)
    yield writer.end()


def _problem_line(error: PenstockError) -> bytes:
    return dumped(problem_document(error, status_of(error)))


@router.get(
    "/v1/events", tags=["server"], response_class=Response, responses={200: {"content": media_of([BodyFormat.SSE])}}
)
async def events(request: Request) -> Response:
    """Return an event for each batch, command and change of state, from now on."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read events")
    opened(request, door)
    source = await door.streaming(door.service.events)
    at_end(request, source.close)

    async def each() -> AsyncIterator[ServerSentEvent]:
        while not door.closing.is_set():
            event = await door.streaming(lambda: source.next(_WAIT))
            if event is not None:
                yield ServerSentEvent(dumped(dict(event.content)).decode(), event=event.kind)

    return EventSourceResponse(each(), ping=_PING)


def opened(request: Request, door: HttpDoor) -> None:
    """Count a subscription until its request ends. Raises Busy beyond the limit."""
    door.open_stream()
    at_end(request, door.close_stream)
