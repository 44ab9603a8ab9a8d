"""`GET /v1/queries/{q}/results` and `GET /v1/events`: rows and events as they come (`streams.py`)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse

from penstock.errors import nearest
from penstock.results.result_source import ResultRequest
from penstock.server.http.documents import Problem
from penstock.server.http.door import at_end, caller_of, door_of
from penstock.server.http.formats import (
    BodyFormat,
    chosen,
    dumped,
    media_of,
    named,
)
from penstock.server.http.problems import Refused
from penstock.server.http.queries import Called, Name
from penstock.server.http.statements import After
from penstock.server.http.streams import PING, STREAMED, WAIT, StreamedFormat, opened, stream_response
from penstock.server.roles import AccessRole

#: How an instant begins, which is no cursor.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

router = APIRouter(responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}})

Cursor = Annotated[str | None, Query(alias="from", max_length=1_000, description="A cursor, `beginning` or `now`.")]


@router.get(
    "/v1/queries/{query:path}/results",
    tags=["queries"],
    response_class=Response,
    responses={200: {"content": media_of(STREAMED)}},
)
async def results(
    request: Request,
    query: Name,
    name: Called = None,
    cursor: Cursor = None,
    snapshot: Annotated[bool, Query(description="Whether the present content comes first.")] = False,
    progress: Annotated[bool, Query(description="Whether rows `p` report the time that is final.")] = False,
    until: Annotated[Literal["now"] | None, Query(description="`now`: end with what there is.")] = None,
    cursors: Annotated[bool, Query(description="NDJSON: whether lines with cursors come between.")] = False,
    format: Annotated[StreamedFormat | None, Query()] = None,  # noqa: A002 - the parameter's name
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=1_000)] = None,
    after: After = None,
) -> Response:
    """Return the results of a query from a cursor on, as they come."""
    door = door_of(request)
    caller = caller_of(request, AccessRole.READ, "to read results")
    form = named(format, STREAMED) if format else chosen(request.headers.get("accept"), STREAMED)
    place = last_event_id or cursor
    beginning = place == "beginning"
    if place is not None and place.isalpha() and place not in ("now", "beginning"):
        raise Refused(400, "P0803", f"{place[:100]!r} is no cursor", hint=nearest(place, ("now", "beginning")))
    if beginning and snapshot:
        hint = "snapshot=true begins with the content of now, from=beginning with the first rows that are kept"
        raise Refused(400, "P0803", "snapshot and from=beginning are two places to begin at", hint=hint)
    if place is not None and _DATE.match(place):
        begun = f"SUBSCRIBE TO {name or query} AS OF '{place[:30]}', sent by POST /v1/statements, begins at an instant"
        hint = f"a cursor comes with rows; from=beginning reads all that are kept, {begun}"
        raise Refused(400, "P0803", f"{place[:100]!r} is no cursor", hint=hint)
    requested = ResultRequest(
        None if place in (None, "now", "beginning") else place, beginning, snapshot, progress, until == "now"
    )
    opened(request, door)
    source = await door.streaming(lambda: door.service.results(name or query, requested, caller, after))
    at_end(request, source.close)
    return await stream_response(door, source, form, cursors)


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
            event = await door.streaming(lambda: source.next(WAIT))
            if event is not None:
                yield ServerSentEvent(dumped(dict(event.content)).decode(), event=event.kind)

    return EventSourceResponse(each(), ping=PING)
