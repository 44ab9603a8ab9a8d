"""`POST /v1/streams/{s}/rows`, `/heartbeat` and `/punctuations`: rows of a source that is declared FROM HTTP or FROM
MEMORY, and heartbeats and punctuations of any stream."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from penstock.redaction import redacted_text
from penstock.server.http.bodies import posted_rows
from penstock.server.http.documents import (
    HeartbeatBody,
    HeartbeatDocument,
    NoticeDocument,
    PostedDocument,
    Problem,
    PunctuationBody,
    PunctuationDocument,
    RejectedRecord,
)
from penstock.server.http.door import caller_of, door_of
from penstock.server.http.formats import BodyFormat, media_format
from penstock.server.http.gate import decompressed
from penstock.server.http.problems import Refused
from penstock.server.http.statements import Key, checked_key
from penstock.server.roles import AccessRole

router = APIRouter(tags=["streams"])

_ACCEPTED = (BodyFormat.NDJSON, BodyFormat.CSV, BodyFormat.ARROW)
#: Malformed records that an answer lists.
_LISTED = 100
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-ndjson": {"schema": {"type": "string"}},
            "text/csv": {"schema": {"type": "string"}},
            "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    207: {"model": PostedDocument, "description": "Some records were malformed and are left out."},
    "4XX": {"model": Problem},
    "5XX": {"model": Problem},
}


@router.post(
    "/v1/streams/{stream:path}/rows",
    response_model=PostedDocument,
    responses=_RESPONSES,
    openapi_extra=_BODY,
    response_model_exclude_unset=True,
)
async def post(
    request: Request,
    response: Response,
    stream: Annotated[str, Path(min_length=1, max_length=1_000, description="The name of a stream or relation.")],
    unknown: Annotated[
        Literal["refuse", "ignore"],
        Query(description="What becomes of keys that are no column of the source."),
    ] = "refuse",
    idempotency_key: Key = None,
) -> PostedDocument:
    """Add rows. They are durable when the answer comes; with an idempotency key they are added once."""
    door = door_of(request)
    caller = caller_of(request, AccessRole.CONTROL, "to add rows")
    key = checked_key(idempotency_key)
    form = media_format(request.headers.get("content-type", ""))
    if form is None or form not in _ACCEPTED:
        shown = request.headers.get("content-type", "unknown")[:100]
        known = ", ".join(one.media.partition(";")[0] for one in _ACCEPTED)
        of_json = "; of JSON one object a line, without brackets around them" if "json" in shown else ""
        raise Refused(415, "P0803", f"rows of the type {shown!r} are not accepted", hint=f"accepted: {known}{of_json}")
    encoding, limit = request.headers.get("content-encoding", ""), door.limits.body_bytes
    body = await request.body()

    def added() -> PostedDocument:
        source = door.service.declaration(stream)
        posted = posted_rows(decompressed(body, encoding, limit), form, source, limit, unknown == "refuse")
        durable = door.service.post(stream, posted.rows, key, caller)
        listed = [
            RejectedRecord(line=one.line, record=redacted_text(one.record), reason=redacted_text(one.reason))
            for one in posted.malformed[:_LISTED]
        ]
        notices = [NoticeDocument(message=one.message, hint=one.hint) for one in durable.notices]
        # What is not there is left out.
        more: dict[str, Any] = {} if durable.position is None else {"position": durable.position}
        more |= {"notices": notices} if notices else {}
        return PostedDocument(
            rows=durable.rows,
            repeated=durable.repeated,
            malformed=len(posted.malformed),
            rejected=listed,
            late=durable.late,
            complete_to=durable.complete_to,
            **more,
        )

    document = await door.posting(added)
    if document.malformed:
        response.status_code = 207
    return document


@router.post(
    "/v1/streams/{stream:path}/heartbeat",
    response_model=HeartbeatDocument,
    responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}},
    response_model_exclude_unset=True,
)
async def heartbeat(
    request: Request,
    body: HeartbeatBody,
    stream: Annotated[str, Path(min_length=1, max_length=1_000, description="The name of a stream.")],
    idempotency_key: Key = None,
) -> HeartbeatDocument:
    """Add a heartbeat, in order with the rows that are posted. It is durable when the answer comes."""
    door = door_of(request)
    caller = caller_of(request, AccessRole.CONTROL, "to advance a stream")
    key = checked_key(idempotency_key)

    def added() -> HeartbeatDocument:
        durable = door.service.advance(stream, body.ts, key, caller)
        notices = [NoticeDocument(message=one.message, hint=one.hint) for one in durable.notices]
        # What is not there is left out.
        more: dict[str, Any] = {} if durable.position is None else {"position": durable.position}
        more |= {"notices": notices} if notices else {}
        return HeartbeatDocument(ts=durable.ts, repeated=durable.repeated, complete_to=durable.complete_to, **more)

    return await door.posting(added)


@router.post(
    "/v1/streams/{stream:path}/punctuations",
    response_model=PunctuationDocument,
    responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}},
    response_model_exclude_unset=True,
)
async def punctuate(
    request: Request,
    body: PunctuationBody,
    stream: Annotated[str, Path(min_length=1, max_length=1_000, description="The name of a stream.")],
    idempotency_key: Key = None,
) -> PunctuationDocument:
    """Add a punctuation, in order with the rows that are posted. It is durable when the answer comes."""
    door = door_of(request)
    caller = caller_of(request, AccessRole.CONTROL, "to punctuate a stream")
    key = checked_key(idempotency_key)

    def added() -> PunctuationDocument:
        durable = door.service.punctuate(stream, body.where, key, caller)
        notices = [NoticeDocument(message=one.message, hint=one.hint) for one in durable.notices]
        # What is not there is left out.
        more: dict[str, Any] = {} if durable.position is None else {"position": durable.position}
        more |= {"notices": notices} if notices else {}
        return PunctuationDocument(where=durable.where, repeated=durable.repeated, **more)

    return await door.posting(added)
