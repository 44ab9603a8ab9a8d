"""`POST /v1/statements`: scripts, and rows of a SELECT in the format that the caller prefers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any
from urllib.parse import quote

import anyio
from fastapi import APIRouter, Header, Path, Request, Response
from starlette.responses import StreamingResponse

from penstock.errors import PenstockError
from penstock.language.statements import OneTimeSelect, SubscribeStatement
from penstock.language.statements.script import Script
from penstock.results.result_source import ResultSource
from penstock.server.http.documents import (
    Problem,
    RunningDocument,
    RunningListDocument,
    ScriptDocument,
    StatementBody,
    running_document,
)
from penstock.server.http.door import HttpDoor, at_end, caller_of, door_of
from penstock.server.http.formats import (
    BodyFormat,
    chosen,
    columns_document,
    dumped,
    fits_a_piece,
    media_of,
    pieces,
)
from penstock.server.http.gate import SQL_BODY
from penstock.server.http.problems import Refused, error_document, problem, warning_document
from penstock.server.http.streams import STREAMED, opened, stream_response
from penstock.server.roles import AccessRole
from penstock.server.service import ScriptReply, ScriptRequest, StatementReply

router = APIRouter(responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}})

#: SSE is the format of a SUBSCRIBE alone.
OFFERED = (BodyFormat.JSON, BodyFormat.NDJSON, BodyFormat.CSV, BodyFormat.ARROW, BodyFormat.SSE)
#: Seconds that a call may take longer than its limit before its thread is abandoned.
_GRACE = 2.0
_LONGEST_KEY = 255
#: Characters of a notice that a header has as they are.
_PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in "%;")

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Executes the request once, however often it is sent.",
        max_length=_LONGEST_KEY,
    ),
]

After = Annotated[
    str | None,
    Header(
        alias="Penstock-After",
        description="A position, as a post or an INSERT answers "
        "it: rows are read when what was posted up to there has been read.",
        max_length=10_000,
    ),
]


@router.post(
    "/v1/statements",
    response_model=ScriptDocument,
    tags=["statements"],
    responses={200: {"content": media_of(OFFERED[1:])}, 202: {"model": ScriptDocument}},
    openapi_extra=SQL_BODY,
)
async def execute(
    request: Request,
    body: StatementBody,
    idempotency_key: Key = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=1_000)] = None,
    after: After = None,
) -> Response:
    """Execute a script. It is bound as a whole: with an error nothing of it is executed. The rows of a single SELECT
    are also had as NDJSON, CSV or an Arrow stream, by the header Accept; those of a SUBSCRIBE come as the results of a
    query do. 202: commands were accepted and have not taken effect yet."""
    door = door_of(request)
    form = chosen(request.headers.get("accept"), OFFERED)
    caller = caller_of(request, AccessRole.READ, "to execute statements")
    check_size(door, body.sql)
    key = checked_key(idempotency_key)
    try:
        parsed = await door.parsed(body.sql)
        script = ScriptRequest(
            parsed, caller, key, body.wait, body.dry, dict(body.settings), cursor=last_event_id, after=after
        )
        if form is not BodyFormat.JSON and (body.dry or not _has_rows(parsed, form)):
            # Refused before anything of it is executed, unless it has errors, which come first.
            await executed(request, door, replace(script, dry=True, key=None))
            offered = "one SELECT alone is answered so; a script is answered as application/json"
            message = f"a script has no answer of the type {form.media}, and nothing of it was executed"
            raise Refused(406, "P0803", message, hint=offered)
        reply = await executed(request, door, script)
        for statement in reply.statements:
            if statement.results is not None:
                return await _subscribed(request, door, statement.results)
        return script_response(reply, form, door.limits.rows)
    except PenstockError as error:
        return problem(error, in_script=True)


def _has_rows(script: Script, form: BodyFormat) -> bool:
    """Return whether a script is a query alone, whose rows are had in a format."""
    # Server-sent events are the format of a SUBSCRIBE alone.
    queries = SubscribeStatement if form is BodyFormat.SSE else OneTimeSelect | SubscribeStatement
    return len(script.statements) == 1 and isinstance(script.statements[0], queries)


async def _subscribed(request: Request, door: HttpDoor, source: ResultSource) -> Response:
    """Return the answer to a SUBSCRIBE: rows as they come. Raises Refused and PenstockError."""
    at_end(request, source.close)
    form = chosen(request.headers.get("accept"), STREAMED)
    opened(request, door)
    return await stream_response(door, source, form)


@router.get("/v1/statements", response_model=RunningListDocument, tags=["statements"])
async def running(request: Request) -> RunningListDocument:
    """Return the one-time queries and subscriptions that run."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to list statements")
    return RunningListDocument(statements=[running_document(one) for one in door.service.statements()])


@router.delete("/v1/statements/{statement}", response_model=RunningDocument, tags=["statements"])
async def cancel(request: Request, statement: Annotated[str, Path(min_length=1, max_length=100)]) -> RunningDocument:
    """End a one-time query or a subscription. One of another token needs the role control."""
    door = door_of(request)
    caller = caller_of(request, AccessRole.READ, "to cancel a statement")
    return running_document(await door.quick(lambda: door.service.cancel(statement, caller)))


def check_size(door: HttpDoor, script: str) -> None:
    """Raise Refused P0804 for a script that is too large."""
    try:
        door.limits.check_script(script)
    except PenstockError as error:
        raise Refused(413, error.code, error.message, hint=error.hint) from None


def checked_key(key: str | None) -> str | None:
    """Return an idempotency key. Raises Refused for one that is empty or has other than visible characters."""
    if key is not None and not (key and key.isascii() and key.isprintable()):
        raise Refused(400, "P0803", "an idempotency key is text of visible ASCII characters")
    return key


async def executed(request: Request, door: HttpDoor, script: ScriptRequest) -> ScriptReply:
    """Execute a script in a thread; a one-time query is cancelled when the caller leaves or its time is over. Raises
    PenstockError P0804 for one that took too long."""
    seconds = door.limits.seconds
    reply: ScriptReply | None = None
    failure: Exception | None = None

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        script.left.set()

    with anyio.move_on_after(seconds + _GRACE if seconds else None):
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            try:
                reply = await door.slow(lambda: door.service.execute(script))
            except Exception as error:
                # Raised inside, the group would wrap it.
                failure = error
            group.cancel_scope.cancel()
    if reply is None:
        # What a thread that is abandoned has opened is closed.
        script.left.set()
    if failure is not None:
        raise failure
    if reply is None:
        message = f"the statement took longer than {seconds:g} seconds, the server's statement_timeout"
        raise Refused(408, "P0804", message)
    return reply


def script_response(reply: ScriptReply, form: BodyFormat, limit: int) -> Response:
    """Return the answer to a script. Raises Refused for one with too many rows."""
    for statement in reply.statements:
        if statement.table is not None and statement.table.num_rows > limit:
            message = f"the answer has {statement.table.num_rows:,} rows, the server returns {limit:,}: max_result_rows"
            raise Refused(413, "P0804", message, hint="add a LIMIT, or aggregate")
    status = 202 if reply.pending else 200
    tables = [statement for statement in reply.statements if statement.table is not None]
    if form is BodyFormat.JSON:
        return _rows_response(_document(reply), tables, status, {}, form)
    table = tables[0].table
    assert table is not None
    return _rows_response(pieces(table, form), tables, status, _headers(tables[0]), form)


def _rows_response(
    body: Iterator[bytes], tables: Sequence[StatementReply], status: int, headers: dict[str, str], form: BodyFormat
) -> Response:
    """Return an answer with rows. Many are written piece by piece, in threads, as their caller takes them: their text
    is never there as a whole."""
    if all(one.table is None or fits_a_piece(one.table) for one in tables):
        return Response(b"".join(body), status, headers, form.media)
    return StreamingResponse(body, status, headers, form.media)


def _headers(reply: StatementReply) -> dict[str, str]:
    """Return what the rows of a SELECT are as of, as headers."""
    headers: dict[str, str] = {}
    if reply.instant is not None:
        headers["Penstock-Instant"] = reply.instant
    if reply.staleness is not None:
        headers["Penstock-Staleness"] = f"{reply.staleness:.3f}"
    if reply.since:
        headers["Penstock-Since"] = ", ".join(f"{quote(name)}={instant}" for name, instant in reply.since.items())
    if reply.notices:
        # Names may have characters that a header has no place for.
        headers["Penstock-Notice"] = "; ".join(quote(str(one), safe=_PLAIN) for one in reply.notices)
    return headers


def _document(reply: ScriptReply) -> Iterator[bytes]:
    """Yield a `ScriptDocument`; rows are written column by column, so they are inserted as text."""
    yield b'{"statements":['
    for place, one in enumerate(reply.statements):
        yield b"," if place else b""
        yield from _statement(one)
    yield b'],"warnings":' + dumped([warning_document(one) for one in reply.warnings]) + b"}"


def _statement(reply: StatementReply) -> Iterator[bytes]:
    head: dict[str, Any] = {"kind": reply.kind, "state": reply.state}
    for name in ("number", "version", "instant", "position", "text", "sql", "check"):
        if (value := getattr(reply, name)) is not None:
            head[name] = value
    if reply.staleness is not None:
        head["staleness"] = round(reply.staleness, 3)
    if reply.since:
        head["since"] = dict(reply.since)
    if reply.notices:
        head["notices"] = [asdict(one) for one in reply.notices]
    if reply.error is not None:
        head["error"] = error_document(reply.error)
    if reply.table is None:
        yield dumped(head)
        return
    head["columns"] = columns_document(reply.table.schema)
    yield dumped(head)[:-1] + b',"rows":'
    yield from pieces(reply.table, BodyFormat.JSON)
    yield b"}"
