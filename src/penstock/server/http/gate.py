"""What every request passes first: host, origin, token, number of requests and scripts, size of its body.

Pure ASGI, so that streams pass through it unbuffered. An error of a route that is none of the caller's is logged and
answered without its text.
"""

from __future__ import annotations

import asyncio
import enum
import hmac
import json
import logging
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.server.http.door import HttpDoor, Interrupted
from penstock.server.http.problems import Refused, failure, problem
from penstock.server.page.files import PAGE_PATHS
from penstock.server.page.sessions import session_caller
from penstock.server.roles import ANYONE, Caller
from penstock.server.tokens import TokenFile, digest, looks_like_token

#: Answered without a token: they report only whether the server works, or are the files of the page.
OPEN_PATHS = frozenset({"/healthz", "/readyz", *PAGE_PATHS})
_TOKEN_NAMES = frozenset({"token", "access_token", "auth_token", "authorization", "api_key", "apikey", "bearer"})
_LOG = logger_of("server")
#: The type of a body that is a script: quotes need no JSON around them. No page of another site can send this type
#: without a preflight request, as it can text/plain.
SQL = "application/sql"
#: The part of the description of routes that accept it.
SQL_BODY: dict[str, Any] = {"requestBody": {"content": {SQL: {"schema": {"type": "string"}}}}}
#: Requests that may bring a body.
_WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
#: Bytes that are unpacked at a time.
_PIECE = 64 * 1024
#: Accepted encodings of bodies, as zlib has them.
_WINDOW_OF = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
#: Headers of every answer: nothing of it is cached, framed or executed by a browser.
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'self'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


class BodyKind(enum.Enum):
    """What the body of a request is: of the type JSON; that or a script alone; of types that the route itself reads."""

    JSON = enum.auto()
    SCRIPT = enum.auto()
    OWN = enum.auto()

    @staticmethod
    def of(route: APIRoute) -> BodyKind:
        """Return what a route says of its body, by its description (`SQL_BODY`)."""
        types = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
        if SQL in types:
            return BodyKind.SCRIPT
        return BodyKind.OWN if types else BodyKind.JSON


class Gate:
    """The outermost ASGI application. Puts the caller into `scope["state"]`.

    Args:
        app: what answers the requests.
        routes: its routes, in order.
    """

    def __init__(self, app: ASGIApp, door: HttpDoor, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._door = door
        self._routes = [
            route for route in routes if isinstance(route, APIRoute) and {*_WITH_BODY} & (route.methods or set())
        ]
        #: Digests of tokens that have been accepted: they are no attempts any more.
        self._known: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = finished = False

        async def marked(message: Message) -> None:
            nonlocal started, finished
            finished = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start":
                started = True
                present = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(h for h in _HEADERS if h[0] not in present)]
                if message["status"] == 503 and self._door.closing.is_set() and b"retry-after" not in present:
                    # The next start answers the same request.
                    message["headers"].append((b"retry-after", b"1"))
            await send(message)

        try:
            with self._door.request(streams=scope["path"].endswith(("/results", "/events"))) as counted:
                caller = await self._admitted(scope)
                scope.setdefault("state", {})["caller"] = caller
                scope["state"]["counted"] = counted
                scope["state"]["admitted"] = caller is not ANYONE or self._door.tokens is None
                kind = self._body_kind(scope)
                if kind is not None:
                    _check_type(scope, kind)
                limit = self._limit(kind)
                receive = _limited(scope, receive, limit)
                if kind is not BodyKind.OWN:
                    scope, receive = unpacked(scope, receive, limit)
                if kind is BodyKind.SCRIPT:
                    self._door.scripts.count(caller.name)
                    if _media_type(scope) == SQL:
                        scope, receive = as_document(scope, receive)
                await self._app(scope, receive, marked)
        except Interrupted:
            # Returning without the end of the body makes the server break the connection off.
            return
        except asyncio.CancelledError:
            if started or not self._door.closing.is_set():
                raise
            # The server waits no longer for the requests in hand. A command that has been accepted is executed all the
            # same, so a client asks again with its idempotency key.
            await problem(
                Refused(503, "P0601", "the server ends before it could answer", hint="ask again when it runs")
            )(scope, receive, marked)
        except PenstockError as error:
            if started:
                raise
            await problem(error)(scope, receive, marked)
        except ClientDisconnect:
            # The client has left before its request was whole: nothing of it is executed or answered.
            return
        except Exception as error:
            answer = failure(error, f"{scope['method']} {scope['path']} failed")
            if finished:
                return
            if started:
                raise
            await answer(scope, receive, marked)
        finally:
            for action in scope.get("state", {}).pop("at_end", ()):
                action()

    # -- host, origin, token -----------------------------------------------------------------------------------

    async def _admitted(self, scope: Scope) -> Caller:
        headers = _headers(scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy before the server may find another end of the request, and take its rest for the next one.
            message, hint = "the request has both Content-Length and Transfer-Encoding", "the connection is closed"
            raise Refused(400, "P0803", message, hint, {"Connection": "close"})
        self._check_host(headers)
        _check_query(scope)
        tokens = self._door.tokens
        if scope["path"] in OPEN_PATHS or tokens is None:
            return ANYONE
        if "authorization" not in headers and "cookie" in headers:
            found = await self._door.quick(lambda: session_caller(tokens, headers["cookie"], headers.get("host", "")))
            if found is not None:
                return found
        return await self._token_owner(scope, headers.get("authorization", ""), tokens)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        if not self._door.hosts.has(host):
            message = f"this server does not answer for the host {host[:200]!r}"
            raise Refused(421, "P0802", message, hint="start it with --server-name NAME to add a name")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(403, "P0802", "requests from pages of other sites are refused")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refused(403, "P0802", "requests from pages of other sites are refused")

    async def _token_owner(self, scope: Scope, authorization: str, tokens: TokenFile) -> Caller:
        address = (scope.get("client") or ("unknown", 0))[0]
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if not token or scheme.lower() != "bearer":
            # A token without its scheme is no scheme: it must not be part of the message.
            other = f", its Authorization is {scheme}" if token and scheme.isalpha() and len(scheme) < 20 else ""
            raise Refused(
                401,
                "P0801",
                f"the request has no token{other}",
                hint="send the header `Authorization: Bearer TOKEN`",
                headers={"WWW-Authenticate": 'Bearer realm="penstock"'},
            )
        presented = digest(token)
        seen = presented is not None and any(hmac.compare_digest(presented, known) for known in self._known)
        wait = 0.0 if seen else self._door.failures.wait(address)
        if wait:
            message = f"too many failed attempts from {address}"
            raise Refused(429, "P0801", message, headers={"Retry-After": str(math.ceil(wait))})
        caller = await self._door.quick(lambda: tokens.check(token))
        if caller is None:
            self._known.discard(presented or "")
            self._door.failures.failed(address)
            log_event(_LOG, logging.WARNING, "login failed", f"a token from {address} was refused", address=address)
            raise Refused(
                401,
                "P0801",
                "the token is unknown, expired or revoked",
                hint="`penstock token list` shows the valid ones",
                headers={"WWW-Authenticate": 'Bearer realm="penstock", error="invalid_token"'},
            )
        if presented is not None:
            self._known.add(presented)
        return caller

    # -- bodies ------------------------------------------------------------------------------------------------

    def _body_kind(self, scope: Scope) -> BodyKind | None:
        """Return what the body of a request is; None where it has none, or where the application refuses its path or
        method, which is what is wrong with the request then."""
        if scope["method"] not in _WITH_BODY:
            return None
        found = (BodyKind.of(route) for route in self._routes if route.matches(scope)[0] is Match.FULL)
        return next(found, None)

    def _limit(self, kind: BodyKind | None) -> int:
        """Return the largest number of bytes of a body."""
        return self._door.limits.body_bytes if kind is BodyKind.OWN else 2 * self._door.limits.statement_bytes


def _limited(scope: Scope, receive: Receive, limit: int) -> Receive:
    """Return `receive`, which refuses a body beyond the limit as soon as it is known to be."""
    length = _headers(scope).get("content-length", "0")
    if length.isdecimal() and int(length) > limit:
        raise too_large(limit)
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                raise too_large(limit)
        return message

    return limited


def too_large(limit: int) -> Refused:
    """Return the error for a body beyond a limit."""
    return Refused(413, "P0804", f"the body is larger than {limit:,} bytes", hint="send it in several requests")


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the content of a body.

    Args:
        encoding: the header Content-Encoding.
        limit: largest number of bytes.

    Raises:
        Refused: 413 beyond the limit, 415 for another encoding, 400 for a damaged body.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _WINDOW_OF:
        hint = f"accepted: {', '.join(_WINDOW_OF)}"
        raise Refused(415, "P0803", f"the body has the encoding {encoding[:100]!r}", hint=hint)
    unpacker = zlib.decompressobj(_WINDOW_OF[name])
    content = bytearray()
    waiting = body
    try:
        while waiting and not unpacker.eof:
            content += unpacker.decompress(waiting, min(_PIECE, limit + 1 - len(content)))
            if len(content) > limit:
                raise too_large(limit)
            waiting = unpacker.unconsumed_tail
    except zlib.error as error:
        hint = f"leave Content-Encoding out where the body is not {name}"
        raise Refused(400, "P0803", f"the body is damaged: {error}", hint=hint) from None
    if not unpacker.eof or unpacker.unused_data:
        raise Refused(400, "P0803", f"the body is not one whole {name} stream")
    return bytes(content)


def unpacked(scope: Scope, receive: Receive, limit: int) -> tuple[Scope, Receive]:
    """Return a request whose body has an encoding as one without. Reading the body raises Refused.

    Args:
        limit: largest number of bytes of the content.
    """
    encoding = _headers(scope).get("content-encoding", "")
    if encoding.strip().lower() in ("", "identity"):
        return scope, receive
    kept = [one for one in scope["headers"] if one[0] not in (b"content-encoding", b"content-length")]
    return {**scope, "headers": kept}, _whole(receive, lambda body: decompressed(body, encoding, limit))


def _whole(receive: Receive, changed: Callable[[bytes], bytes]) -> Receive:
    """Return `receive` for a body that is changed as a whole."""
    is_read = False

    async def whole() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        content = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return message
            content += message.get("body", b"")
            more = message.get("more_body", False)
        is_read = True
        return {"type": "http.request", "body": changed(bytes(content)), "more_body": False}

    return whole


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def as_document(scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
    """Return a request whose body is a script as one with the document that has it as `sql`. Reading the body raises
    Refused where it is not UTF-8."""
    kept = [(name, value) for name, value in scope["headers"] if name not in (b"content-type", b"content-length")]
    made = {**scope, "headers": [*kept, (b"content-type", b"application/json")]}

    def document(content: bytes) -> bytes:
        try:
            return json.dumps({"sql": content.decode()}).encode()
        except UnicodeDecodeError as error:
            message = f"the script is not UTF-8: byte {error.start + 1} is 0x{content[error.start]:02X}"
            raise Refused(400, "P0803", message) from None

    return made, _whole(receive, document)


def _check_type(scope: Scope, kind: BodyKind) -> None:
    """Refuse a body that is not of the type JSON where it should be: pages of other sites cannot send that type without
    a preflight request."""
    media, takes_scripts = _media_type(scope), kind is BodyKind.SCRIPT
    if kind is not BodyKind.OWN and media != "application/json" and not (takes_scripts and media == SQL):
        message = f"the body is of the type {media[:100] or 'unknown'!r}"
        hint = f", or a script alone with `Content-Type: {SQL}`" if takes_scripts else ""
        raise Refused(415, "P0803", message, hint=f"send it with `Content-Type: application/json`{hint}")


def _media_type(scope: Scope) -> str:
    return _headers(scope).get("content-type", "").partition(";")[0].strip().lower()


def _check_query(scope: Scope) -> None:
    """Refuse a token in the address: it would be stored in logs and histories."""
    query = scope["query_string"].decode("latin-1")
    named = {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    if named & _TOKEN_NAMES or looks_like_token(query) or looks_like_token(scope["path"]):
        hint = "send the header `Authorization: Bearer TOKEN`, and revoke a token that was in an address"
        raise Refused(400, "P0801", "a token must not be part of an address", hint=hint)
