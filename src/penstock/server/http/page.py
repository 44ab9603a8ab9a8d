"""`/` and `/page/`: the page; `/v1/session`: who uses it; `/v1/plan`: what it draws; `/v1/words`: what
it completes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from penstock.expressions.calls.functions import known_functions
from penstock.language.keywords import KEYWORDS
from penstock.server.http.documents import Problem, SessionDocument, WordsDocument
from penstock.server.http.door import caller_of, door_of
from penstock.server.http.problems import Refused
from penstock.server.page.files import PAGE_FILES
from penstock.server.page.sessions import LASTS, begin_session, cookie_name
from penstock.server.roles import AccessRole

router = APIRouter(responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}}, tags=["page"])


@router.get("/v1/session", response_model=SessionDocument)
async def who(request: Request) -> SessionDocument:
    """Return whose token or session the request has."""
    caller = caller_of(request, AccessRole.READ, "to use the page")
    return SessionDocument(name=caller.name, role=caller.role.word, needs_token=door_of(request).tokens is not None)


@router.post("/v1/session", response_model=SessionDocument)
async def begin(request: Request, response: Response) -> SessionDocument:
    """Begin a session of the page: the cookie of the answer stands for the token of the request, for scripts of a page
    cannot read it."""
    tokens = door_of(request).tokens
    document = await who(request)
    if tokens is not None:
        caller = caller_of(request, AccessRole.READ, "to use the page")
        value = await door_of(request).quick(lambda: begin_session(tokens, caller))
        if value is None:
            raise Refused(401, "P0801", "the token has been revoked")
        response.set_cookie(
            _name(request), value, max_age=LASTS, httponly=True, samesite="strict", secure=_is_secure(request)
        )
    return document


@router.delete("/v1/session", status_code=204)
async def end(request: Request) -> Response:
    """End the session of the page in this browser."""
    answer = Response(status_code=204)
    answer.delete_cookie(_name(request), httponly=True, samesite="strict", secure=_is_secure(request))
    return answer


@router.get(
    "/v1/plan", response_class=Response, responses={200: {"content": {"image/svg+xml": {"schema": {"type": "string"}}}}}
)
async def plan(
    request: Request,
    query: Annotated[str | None, Query(max_length=1_000, description="Only of this query.")] = None,
    source: Annotated[
        str | None, Query(max_length=1_000, description="Only of queries that read this stream or relation.")
    ] = None,
) -> Response:
    """Return the plan that runs as an SVG picture. A node is a group with the attribute `data-node`, `0:` and the key
    of its operator, whose figures `penstock.operators` has."""
    door = door_of(request)
    caller_of(request, AccessRole.READ, "to read a plan")
    text = await door.slow(lambda: door.service.running_plan(query, source))
    return Response(text.encode("utf-8", "backslashreplace"), media_type="image/svg+xml")


@router.get("/v1/words", response_model=WordsDocument)
async def words(request: Request) -> WordsDocument:
    """Return the keywords of the language and the names of its functions, for completion."""
    caller_of(request, AccessRole.READ, "to read the words of the language")
    return WordsDocument(keywords=list(KEYWORDS), functions=known_functions())


@router.get("/", include_in_schema=False)
@router.get("/favicon.ico", include_in_schema=False)
@router.get("/page/{path:path}", include_in_schema=False)
async def file(request: Request) -> Response:
    """Return a file of the page."""
    found = PAGE_FILES.get(request.url.path)
    if found is None:
        raise Refused(404, "P0803", f"there is nothing at {request.url.path[:200]}", hint="the page is at /")
    # A browser caches the files and revalidates them by their tag, so a newer server has its own page at once.
    headers = {"cache-control": "no-cache", "etag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media)


def _name(request: Request) -> str:
    return cookie_name(request.headers.get("host", ""))


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"
