"""`/v1/queries`: what stands, changes of it as statements, plans."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from penstock.errors import PenstockError
from penstock.server.http.documents import (
    Problem,
    QueriesDocument,
    QueryDocument,
    QueryPatch,
    ScriptDocument,
    query_document,
)
from penstock.server.http.door import HttpDoor, caller_of, door_of
from penstock.server.http.formats import BodyFormat
from penstock.server.http.problems import Refused, problem
from penstock.server.http.statements import Key, checked_key, executed, script_response
from penstock.server.roles import AccessRole
from penstock.server.service import ScriptRequest

router = APIRouter(
    prefix="/v1/queries", responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}}, tags=["queries"]
)

_TEXT = "text/plain; charset=utf-8"
#: Media types of plans that are no plain text.
_MEDIA = {"json": BodyFormat.JSON.media, "sharing": BodyFormat.JSON.media, "drawn": "image/svg+xml"}

Name = Annotated[str, Path(min_length=1, max_length=1_000, description="The name of the query.")]
_CALLED = "The name of the query, in place of the one in the path: no path can have `..`, `a/./b` or `a/plan`."
Called = Annotated[str | None, Query(min_length=1, max_length=1_000, description=_CALLED)]


@router.get("", response_model=QueriesDocument)
async def listed(request: Request) -> QueriesDocument:
    """Return all continuous queries."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to list queries")
    return QueriesDocument(queries=[query_document(view) for view in await door.slow(door.service.queries)])


@router.get(
    "/{query:path}/plan",
    response_class=Response,
    responses={
        200: {
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/json": {},
                "image/svg+xml": {"schema": {"type": "string"}},
            }
        }
    },
)
async def plan(
    request: Request,
    query: Name,
    name: Called = None,
    format: Annotated[Literal["json", "text", "mermaid", "drawn", "sharing"], Query()] = "text",  # noqa: A002 - its name
) -> Response:
    """Return the plan of a query: as text, JSON, a Mermaid flowchart, or drawn as an SVG picture; or which of its steps
    are shared with others, as JSON."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read a plan")
    text = await door.slow(lambda: door.service.plan(name or query, format))
    return Response(text.encode("utf-8", "backslashreplace"), media_type=_MEDIA.get(format, _TEXT))


@router.get("/{query:path}", response_model=QueryDocument)
async def one(request: Request, query: Name, name: Called = None) -> QueryDocument:
    """Return a continuous query."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read a query")
    return query_document(await door.slow(lambda: door.service.query(name or query)))


@router.patch("/{query:path}", response_model=ScriptDocument)
async def change(
    request: Request, query: Name, body: QueryPatch, name: Called = None, idempotency_key: Key = None
) -> Response:
    """Change a query: the members of the body are ALTER statements, which take effect together or not at all."""
    door = door_of(request)
    statements = alterations(name or query, body)
    if not statements:
        raise Refused(400, "P0803", "the body has nothing to change", hint='such as {"state": "PAUSED"}')
    return await _command(request, door, name or query, ";\n".join(statements), idempotency_key, body.wait)


@router.delete("/{query:path}", response_model=ScriptDocument)
async def drop(
    request: Request,
    query: Name,
    name: Called = None,
    cascade: bool = False,
    wait: bool = True,
    idempotency_key: Key = None,
) -> Response:
    """Drop a query. cascade: with all that reads it."""
    text = f"DROP QUERY {quoted(name or query)}" + (" CASCADE" if cascade else "")
    return await _command(request, door_of(request), name or query, text, idempotency_key, wait)


async def _command(request: Request, door: HttpDoor, name: str, text: str, key: str | None, wait: bool) -> Response:
    caller = caller_of(request, AccessRole.CONTROL, "to change queries")
    unknown: PenstockError | None = None
    try:
        await door.slow(lambda: door.service.query(name))
    except PenstockError as error:
        unknown = error
    if unknown is not None and key is None:
        return problem(unknown)
    try:
        # A repeated command may be the one by which the query is gone.
        script = ScriptRequest(await door.parsed(text), caller, checked_key(key), wait)
        reply = await executed(request, door, script)
        return script_response(reply, BodyFormat.JSON, door.limits.rows)
    except PenstockError as error:
        return problem(unknown or error)


def alterations(query: str, body: QueryPatch) -> list[str]:
    """Return the ALTER statements of a change; the new name comes last."""
    head = f"ALTER QUERY {quoted(query)}"
    start = ""
    if body.start is not None:
        start = f" START {body.start}"
    elif body.start_at is not None:
        start = f" START AT {literal(body.start_at)}"
    start += " RESET" if body.reset else ""
    statements = []
    if body.attributes:
        pairs = ", ".join(f"{quoted(name)} {literal(value)}" for name, value in body.attributes.items())
        statements.append(f"{head} SET ({pairs})")
    if body.sql is not None:
        statements.append(f"{head} AS {body.sql}{start if body.state != 'RUNNING' else ''}")
    if body.state == "PAUSED":
        statements.append(f"{head} PAUSE" + (" WITH STATE" if body.with_state else ""))
    if body.state == "RUNNING":
        statements.append(f"{head} RESUME{start}")
    if body.name is not None:
        statements.append(f"{head} RENAME TO {quoted(body.name)}")
    return statements


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as a literal of the language."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
