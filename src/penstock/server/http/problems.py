"""Errors as documents of the type `application/problem+json` [RFC 9457].

Besides the members of that standard they have `code`, `message`, `hint` and `position {line, column, length, text}` of
the first error, and `errors`, all of them. Secrets are removed; there is never a traceback.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi.routing import APIRoute
from starlette.responses import Response

from penstock.errors import CODES, Busy, PenstockError, Position, ScriptErrors, ScriptWarning, likeness, log_internal
from penstock.redaction import redacted_line, redacted_text

MEDIA = "application/problem+json"

#: Status by code; 400 for all others of the user's text, 503 for those of the run.
_STATUS = {
    "P0201": 404, "P0206": 409, "P0222": 409, "P0501": 409, "P0609": 409, "P0701": 409, "P0703": 409, "P0711": 409,
    "P0712": 410, "P0721": 409, "P0724": 413, "P0725": 408, "P0726": 409, "P0731": 422,
    "P0732": 409, "P0801": 401, "P0802": 403, "P0803": 400, "P0804": 413, "P0805": 403, "P0901": 422,
}  # fmt: skip
#: Errors of the machine or the run, not of what the caller sent.
_OF_THE_RUN = frozenset({"P0411", "P0601", "P0603", "P0604", "P0605", "P0621", "P0631", "P0632", "P0807"})


class Refused(PenstockError):
    """An error of the door with a status and headers of its own."""

    def __init__(
        self, status: int, code: str, message: str, hint: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.status = status
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.status, self.code, self.message, self.hint, self.headers))


def status_of(error: PenstockError, in_script: bool = False) -> int:
    """Return the HTTP status of an error. in_script: a name in the text of a script is no resource, so an unknown one
    is 400."""
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, Busy):
        return 429
    if in_script and error.code == "P0201":
        return 400
    return _STATUS.get(error.code, 503 if error.code in _OF_THE_RUN else 400)


def error_document(error: PenstockError) -> dict[str, Any]:
    """Return `code`, `message`, and where they exist `hint` and `position` of an error."""
    document: dict[str, Any] = {"code": error.code, "message": redacted_text(error.message)}
    if error.hint:
        document["hint"] = redacted_text(error.hint)
    if error.position is not None:
        document["position"] = _position(error.position)
    return document


def warning_document(warning: ScriptWarning) -> dict[str, Any]:
    """Return `message`, `position` and where it exists `hint` of a warning."""
    document: dict[str, Any] = {"message": redacted_text(warning.message), "position": _position(warning.position)}
    if warning.hint:
        document["hint"] = redacted_text(warning.hint)
    return document


def _position(place: Position) -> dict[str, Any]:
    text, column, length = redacted_line(place.text, place.column, place.length)
    return {"line": place.line, "column": column, "length": length, "text": text}


def problem_document(error: PenstockError, status: int) -> dict[str, Any]:
    """Return the whole document."""
    each = error.errors if isinstance(error, ScriptErrors) else (error,)
    head = {"type": "about:blank", "title": CODES[error.code], "status": status, "detail": redacted_text(error.message)}
    return {**head, **error_document(error), "errors": [error_document(one) for one in each]}


def failure(error: Exception, what: str) -> Response:
    """Log a fault of the server; return the response for it, without the text of its error. what: what has failed."""
    reference = log_internal(error, what)
    message = f"the server failed: {type(error).__name__} (reference {reference})"
    return problem(Refused(500, "P0601", message, hint="its log has the reason under this reference"))


def problem(error: PenstockError, in_script: bool = False) -> Response:
    """Return the response for an error."""
    status = status_of(error, in_script)
    headers = dict(error.headers) if isinstance(error, Refused) else {}
    if isinstance(error, Busy):
        headers["Retry-After"] = str(math.ceil(error.seconds))
    document = problem_document(error, status)
    content = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return Response(content, status, headers, MEDIA)


# -- the nearest address ------------------------------------------------------------------------------------------

#: The least likeness of two words of an address, from 0 to 1.
_LIKE = 0.6
#: What a word costs that is missing, or too many; an address that costs more in all is another one.
_WORD = 0.4
_MOST = 0.8


def nearest_address(path: str, routes: Iterable[Any], method: str = "GET") -> str | None:
    """Return a hint with the address that is like `path`, or the methods of `path` itself; None where none is, and
    where `method` is one that removes or replaces and the address has others."""
    words = path.split("/")[1:]
    found: list[tuple[float, int, str, str]] = []
    for place, route in enumerate(routes):
        if isinstance(route, APIRoute) and route.include_in_schema:
            others = route.path.replace(":path}", "}").split("/")[1:]
            likes = [_like(words, others), _like(["v1", *words], others, _WORD)]
            if words[0] == "v1":
                likes.append(_like(words[1:], others, _WORD))
            if words[1:2] in (["relations"], ["tables"]):  # rows of both are posted as those of streams
                likes.append(_like(["v1", "streams", *words[2:]], others, _WORD))
            found += [
                (like[0], place, like[1], each) for like in likes if like is not None for each in route.methods or ()
            ]
    if not found:
        return None
    # Of several that are as near, the first that is declared.
    cost, _, address, _ = min(found)
    there = {each for *_, other, each in found if other == address}
    if cost and method in ("DELETE", "PUT", "PATCH") and method not in there:
        return None
    methods = " or ".join(sorted(there))
    return f"{methods} is" if not cost else f"did you mean {methods} {address}?"


def _like(path: Sequence[str], route: Sequence[str], cost: float = 0.0) -> tuple[float, str] | None:
    """Return how unlike a path and a route are, and the address of the route with the names of the path; None for
    others."""
    words = list(path)
    if abs(len(words) - len(route)) == 1 and not route[-1].startswith("{"):
        words = [*words[: len(route)], *route[len(words) :]]
        cost += _WORD
    if len(words) != len(route):
        return None
    for i, (word, other) in enumerate(zip(words, route, strict=True)):
        if other.startswith("{"):
            if not word:
                return None
            continue
        alike = likeness(word.lower()[:100], other)
        if alike < _LIKE:
            return None
        cost += 1 - alike
        words[i] = other
    return (cost, "/" + "/".join(words)) if cost <= _MOST else None
