"""The HTTP application: all routes, errors as problem documents, OpenAPI without pages from elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from penstock import __version__
from penstock.errors import PenstockError, nearest
from penstock.server.http import (
    entities,
    page,
    queries,
    results,
    rows,
    statements,
    status,
)
from penstock.server.http.door import HttpDoor, Interrupted
from penstock.server.http.gate import Gate
from penstock.server.http.problems import Refused, failure, nearest_address, problem

_ABOUT = (
    "Continuous queries over streams and relations: statements, results as they come, rows, and the log of commands."
)

#: The routes, one file a topic. Names may hold slashes, so a longer path is looked at before a shorter one.
_ROUTERS = (
    statements.router,
    results.router,
    queries.router,
    rows.router,
    entities.router,
    status.router,
)
_ROUTES = tuple(route for router in _ROUTERS for route in router.routes)
#: Those that look here add parameters of their own.
_WATCHED = ("/healthz", "/readyz", "/metrics")


def create_app(door: HttpDoor) -> ASGIApp:
    """Return the application of a door."""
    app = FastAPI(
        title="Penstock",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.door = door
    for router in _ROUTERS:
        app.include_router(router, dependencies=[Depends(_known_parameters)])
    app.include_router(page.router)
    app.add_exception_handler(PenstockError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _of_the_framework)
    app.add_exception_handler(Exception, _failed)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]  # as FastAPI documents it
    return Gate(app, door, (*_ROUTES, *page.router.routes))


#: What a request is that was to execute or declare something, behind a hint.
_SENT = "; a statement, CREATE QUERY or DROP STREAM too, is sent by POST /v1/statements"
#: Members of bodies by which other systems take the values of a statement.
_VALUES = frozenset(("params", "parameters", "args", "arguments", "values", "bind", "binds"))


async def _known_parameters(request: Request) -> None:
    """Raise Refused for parameters that would be left out, such as a misspelt one without which a result has no end."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or request.url.path in _WATCHED:
        return
    known = [field.alias for field in route.dependant.query_params]
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        hint = _address_below_a_query(request) or (
            nearest(unknown[0], known) if known else f"there are none here{_SENT}"
        )
        raise Refused(400, "P0803", f"unknown parameter {unknown[0][:100]!r}", hint=hint)
    if route.body_field is not None and "json" in request.headers.get("content-type", ""):
        # What is no JSON has been refused before, but for an empty body.
        json.loads(await request.body() or b"null", object_pairs_hook=_each_once)


def _each_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raises Refused for a member that occurs twice, of which one would be left out."""
    found = dict(members)
    if len(found) < len(members):
        (twice, _), *_ = Counter(name for name, _ in members).most_common(1)
        raise Refused(400, "P0803", f"the body has the member {twice[:100]!r} twice", hint="leave one of them out")
    return found


async def _known(request: Request, error: Exception) -> Response:
    if not isinstance(error, PenstockError):
        raise error
    if error.code == "P0201":
        error.hint = _address_below_a_query(request) or error.hint
    return problem(error)


def _address_below_a_query(request: Request) -> str | None:
    """Return a hint for what may be a misspelt address below a query: names may hold slashes, so it is that of another
    query."""
    is_query = "/" in request.path_params.get("query", "")
    return nearest_address(request.url.path, _ROUTES) if is_query else None


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect | Interrupted):
        raise error
    return failure(error, f"{request.method} {request.url.path} failed")


async def _invalid(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        message = f"the body is no JSON: {first['ctx']['error']}, at character {first['loc'][-1] + 1}"
        hint = "a script may be the whole body, without JSON around it, with `Content-Type: application/sql`"
        is_script = request.url.path == "/v1/statements"
        return problem(
            Refused(400, "P0803", message, hint=hint if is_script else "/openapi.json describes the request")
        )
    unknown = next((e["loc"][1] for e in error.errors() if e["type"] == "extra_forbidden" and len(e["loc"]) == 2), None)
    if unknown is not None:
        # A member that is missing may be this one.
        hint = nearest(str(unknown), _members(request)) or "/openapi.json describes the request"
        if request.url.path.startswith("/v1/entities/"):
            hint = f'attributes stand together: {{"attributes": {{"{str(unknown)[:100]}": ...}}}}; {hint}'
        if str(unknown).lower() in _VALUES:
            hint = f"the values of a statement stand in its text, as in WHERE level > 0; {hint}"
        return problem(Refused(400, "P0803", f"the body has an unknown member {str(unknown)[:100]!r}", hint=hint))
    if first["loc"] == ("body",) and first["type"] == "missing":
        members = ", ".join(_members(request))
        return problem(Refused(400, "P0803", "the body is empty", hint=f"a JSON object with {members}"))
    if first["loc"][:1] == ("path",) and first["type"] == "string_too_short":
        return await _of_the_framework(request, HTTPException(404))
    place = ".".join(str(part) for part in first["loc"])
    return problem(Refused(400, "P0803", f"{place}: {first['msg']}", hint="/openapi.json describes the request"))


def _members(request: Request) -> list[str]:
    """Return the names that the body of a request may have."""
    route = request.scope.get("route")
    field = route.body_field if isinstance(route, APIRoute) else None
    return list(getattr(None if field is None else field.field_info.annotation, "model_fields", ()))


async def _of_the_framework(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if isinstance(error.__cause__, PenstockError):
        return problem(error.__cause__)
    if error.status_code == 404:
        message = f"there is nothing at {request.url.path[:200]}"
    elif error.status_code == 405:
        message = f"{request.method} is not possible at {request.url.path[:200]}"
    elif isinstance(cause := error.__cause__, UnicodeDecodeError):
        message = f"the body is not UTF-8: byte {cause.start + 1} is 0x{cause.object[cause.start]:02X}"
    else:
        message = str(error.detail)[:500]
    is_place = error.status_code in (404, 405)
    near = nearest_address(request.url.path, _ROUTES, request.method) if is_place else None
    hint = near or "/openapi.json lists what there is"
    if error.status_code == 405 or near is None:
        hint += _SENT
    return problem(Refused(error.status_code, "P0803", message, hint=hint, headers=dict(error.headers or {})))


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with the token that requests need."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        parts = document.setdefault("components", {})
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        for path in ("/healthz", "/readyz"):
            document["paths"][path]["get"]["security"] = []
        for path in document["paths"].values():
            for operation in path.values():
                for code, answer in operation["responses"].items():
                    if code in ("4XX", "5XX"):
                        answer["content"] = {"application/problem+json": answer["content"]["application/json"]}
        app.openapi_schema = document
    return app.openapi_schema
