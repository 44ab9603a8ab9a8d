"""The address that somebody may have meant who asks for one that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi.routing import APIRoute

#: The least likeness of two words of an address, from 0 to 1.
_LIKE = 0.6
#: What a word costs that is missing, or too many; an address that costs more in all is another one.
_WORD = 0.4
_MOST = 0.8


def nearest_address(path: str, routes: Iterable[Any]) -> str | None:
    """Return a hint with the address that is like `path`, or the methods of `path` itself; None where none is."""
    given = path.split("/")[1:]
    found: list[tuple[float, str, str]] = []
    for route in routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            wanted = route.path.replace(":path}", "}").split("/")[1:]
            likes = [_like(given, wanted), _like(["v1", *given], wanted, _WORD)]
            found += [(*like, method) for like in likes if like is not None for method in route.methods or ()]
    if not found:
        return None
    cost, address, _ = min(found)
    methods = " or ".join(dict.fromkeys(method for _, there, method in sorted(found) if there == address))
    return f"{methods} is" if not cost else f"did you mean {methods} {address}?"


def _like(given: Sequence[str], wanted: Sequence[str], cost: float = 0.0) -> tuple[float, str] | None:
    """Return how unlike a path and a route are, and the address of the route with the names of the path; None for
    others."""
    words = list(given)
    if abs(len(words) - len(wanted)) == 1 and not wanted[-1].startswith("{"):
        words = [*words[: len(wanted)], *wanted[len(words) :]]
        cost += _WORD
    if len(words) != len(wanted):
        return None
    for i, (word, other) in enumerate(zip(words, wanted, strict=True)):
        if other.startswith("{"):
            if not word:
                return None
            continue
        likeness = difflib.SequenceMatcher(None, word.lower()[:100], other).ratio()
        if likeness < _LIKE:
            return None
        cost += 1 - likeness
        words[i] = other
    return (cost, "/" + "/".join(words)) if cost <= _MOST else None
