"""Routes of `/v1/entities` and `/v1/relations`: the control relations, and attributes as a form."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from penstock.errors import PenstockError
from penstock.language.queries import CONTROL_SCHEMA
from penstock.language.statements import OneTimeSelect
from penstock.language.statements.script import Script
from penstock.physical.execution.flow_counts import MOST_ROWS
from penstock.server.http.documents import (
    EntitiesDocument,
    EntityDocument,
    EntityPatch,
    Problem,
    ScriptDocument,
    entity_document,
)
from penstock.server.http.door import at_end, caller_of, door_of
from penstock.server.http.formats import BodyFormat, chosen, media_of, named
from penstock.server.http.problems import Refused, problem
from penstock.server.http.queries import literal, quoted
from penstock.server.http.statements import OFFERED, Key, check_size, checked_key, executed, script_response
from penstock.server.http.streams import STREAMED, StreamedFormat, opened, stream_response
from penstock.server.roles import AccessRole
from penstock.server.service import ScriptRequest

#: Behind a hint for the name of what a user has declared.
_OWN = (
    "; control relations alone are here: POST /v1/statements takes any SELECT, GET /v1/queries/q/results is of a query"
)

router = APIRouter(responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}}, tags=["entities"])

Id = Annotated[str, Path(min_length=1, max_length=1_000, description="The id of the entity, such as `query:12`.")]


@router.get("/v1/entities", response_model=EntitiesDocument)
async def entities(
    request: Request,
    kind: Annotated[str | None, Query(max_length=100, description="Those of one kind alone.")] = None,
    query: Annotated[str | None, Query(max_length=1_000, description="Those that belong to a query.")] = None,
) -> EntitiesDocument:
    """Return the entities without their attributes."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to list entities")
    found = await door.slow(lambda: door.service.entities(kind, query))
    return EntitiesDocument(entities=[entity_document(one) for one in found])


@router.get("/v1/entities/{entity:path}/tap", response_class=Response, responses={200: {"content": media_of(STREAMED)}})
async def tap(
    request: Request,
    entity: Id,
    rows: Annotated[int, Query(ge=1, le=MOST_ROWS, description="After how many rows it ends.")] = 20,
    seconds: Annotated[float, Query(gt=0, le=600, description="After how many seconds it ends.")] = 10,
    format: Annotated[StreamedFormat | None, Query()] = None,  # noqa: A002 - the parameter's name
) -> Response:
    """Return rows of an edge of the plan as they come; the edge is named by the id of its queue."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to tap an edge")
    form = named(format, STREAMED) if format else chosen(request.headers.get("accept"), STREAMED)
    opened(request, door)
    source = await door.streaming(lambda: door.service.tap(entity, rows, seconds))
    at_end(request, source.close)
    return await stream_response(door, source, form)


@router.get("/v1/entities/{entity:path}", response_model=EntityDocument)
async def entity(request: Request, entity: Id) -> EntityDocument:
    """Return an entity with its attributes."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read an entity")
    return entity_document(await door.slow(lambda: door.service.entity(entity)))


@router.patch("/v1/entities/{entity:path}", response_model=ScriptDocument, responses={202: {"model": ScriptDocument}})
async def change(request: Request, entity: Id, body: EntityPatch, idempotency_key: Key = None) -> Response:
    """Set attributes of an entity, all of them or none."""
    door = door_of(request)
    caller = caller_of(request, AccessRole.CONTROL, "to set attributes")
    if not body.attributes:
        raise Refused(400, "P0803", "the body has nothing to set", hint='such as {"attributes": {"weight": "2"}}')
    await door.slow(lambda: door.service.entity(entity))
    text = ";\n".join(
        f"UPDATE {CONTROL_SCHEMA}.attributes SET value = {'NULL' if value is None else literal(value)}"
        f" WHERE entity = {literal(entity)} AND attribute = {literal(name)} CONFIRM 1 ROW"
        for name, value in body.attributes.items()
    )
    try:
        script = ScriptRequest(await door.parsed(text), caller, checked_key(idempotency_key), body.wait)
        return script_response(await executed(request, door, script), BodyFormat.JSON, door.limits.rows)
    except PenstockError as error:
        return problem(error)


@router.get("/v1/relations/{relation}", response_class=Response)
async def relation(
    request: Request,
    relation: Annotated[str, Path(min_length=1, max_length=100, description="Its name without `penstock`.")],
    where: Annotated[str | None, Query(max_length=100_000, description="A condition of its rows.")] = None,
) -> Response:
    """Return the rows of a control relation in the format that the caller prefers."""
    door = door_of(request)
    caller = caller_of(request, AccessRole.READ, "to read a control relation")
    form = chosen(request.headers.get("accept"), OFFERED)
    text = f"SELECT * FROM {CONTROL_SCHEMA}.{quoted(relation.lower())}" + ("" if where is None else f"\nWHERE {where}")
    check_size(door, text)
    try:
        script = await door.parsed(text)
        _check_condition(script)
        reply = await executed(request, door, ScriptRequest(script, caller))
        return script_response(reply, form, door.limits.rows)
    except PenstockError as error:
        for one in (error, *getattr(error, "errors", ())):
            if one.code == "P0201":
                one.hint = f"{one.hint}{_OWN}"
        return problem(error)


def _check_condition(script: Script) -> None:
    """Raise PenstockError P0101 for a text that is more than one condition: only rows may be read."""
    if len(script.statements) != 1 or not isinstance(script.statements[0], OneTimeSelect):
        raise PenstockError("P0101", "`where` is one condition", hint="such as where=state = 'RUNNING'")
