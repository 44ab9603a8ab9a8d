"""Commands, the catalog, metrics and health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from penstock.errors import PenstockError
from penstock.quantities import LARGEST_BIGINT
from penstock.server.http.documents import (
    CatalogBody,
    CatalogDocument,
    CommandDocument,
    CommandsDocument,
    HealthDocument,
    Problem,
    ScriptDocument,
    catalog_document,
    command_document,
    health_document,
)
from penstock.server.http.door import caller_of, door_of
from penstock.server.http.formats import BodyFormat
from penstock.server.http.gate import SQL_BODY
from penstock.server.http.problems import problem
from penstock.server.http.statements import Key, check_size, checked_key, executed, script_response
from penstock.server.roles import AccessRole
from penstock.server.service import ScriptRequest

router = APIRouter(responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}}, tags=["server"])

_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_TEXT = {"text/plain": {"schema": {"type": "string"}}}


@router.get("/v1/commands", response_model=CommandsDocument)
async def commands(
    request: Request,
    after: Annotated[int, Query(ge=0, le=LARGEST_BIGINT, description="Commands with larger numbers alone.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> CommandsDocument:
    """Return commands in the order of their numbers."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read commands")
    found = await door.slow(lambda: door.service.commands(after, limit))
    return CommandsDocument(commands=[command_document(one) for one in found])


@router.get("/v1/commands/{number}", response_model=CommandDocument)
async def command(request: Request, number: Annotated[int, Path(ge=0, le=LARGEST_BIGINT)]) -> CommandDocument:
    """Return a command and what became of it."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read a command")
    return command_document(await door.slow(lambda: door.service.command(number)))


@router.get("/v1/catalog", response_model=CatalogDocument)
async def catalog(request: Request) -> CatalogDocument:
    """Return all that is declared."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read the catalog")
    return catalog_document(await door.slow(door.service.catalog))


@router.put(
    "/v1/catalog", response_model=ScriptDocument, responses={202: {"model": ScriptDocument}}, openapi_extra=SQL_BODY
)
async def apply(
    request: Request,
    body: CatalogBody,
    dry: Annotated[bool, Query(description="Only find the difference.")] = False,
    idempotency_key: Key = None,
) -> Response:
    """Bring the declarations to those of the body, all of them or none. The answer has the statements that differ, in
    their order: what is not in the body is dropped, what is the same goes on."""
    door = door_of(request)
    caller = caller_of(request, AccessRole.CONTROL, "to change the catalog")
    check_size(door, body.sql)
    key = checked_key(idempotency_key)
    try:
        parsed = await door.parsed(body.sql)
        script = ScriptRequest(parsed, caller, key, body.wait, dry, dict(body.settings), is_whole=True)
        return script_response(await executed(request, door, script), BodyFormat.JSON, door.limits.rows)
    except PenstockError as error:
        return problem(error, in_script=True)


@router.get("/metrics", response_class=Response, responses={200: {"content": _TEXT}})
async def metrics(request: Request) -> Response:
    """Return the metrics for Prometheus."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read metrics")
    return Response(await door.slow(door.service.metrics), media_type=_METRICS)


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", response_model=HealthDocument)
async def alive(request: Request, response: Response) -> HealthDocument:
    """Return whether the server lives; no token is needed."""
    return await _health(request, response, ready=False)


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model=HealthDocument)
async def ready(request: Request, response: Response) -> HealthDocument:
    """Return whether batches are processed; no token is needed."""
    return await _health(request, response, ready=True)


async def _health(request: Request, response: Response, ready: bool) -> HealthDocument:
    door = door_of(request)
    document = health_document(await door.quick(door.service.health), ready)
    if door.closing.is_set():
        document = HealthDocument(status="unavailable", problem="the server is ending")
    if document.status != "ok":
        response.status_code = 503
    return document
