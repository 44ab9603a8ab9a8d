"""Decide from where a query that begins in a running job gets the past of its sources."""

from __future__ import annotations

import enum
from collections.abc import Collection

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.connectors.sources import is_rereadable
from penstock.errors import PenstockError


class PastProvider(enum.Enum):
    """What provides the past of a query's sources."""

    #: The query needs none.
    NONE = "none"
    #: The sources themselves, read again from their beginning (`backfill.py`).
    SOURCES = "sources"


def past_provider(query: Query, start: Start, read: Collection[str]) -> PastProvider:
    """Return what provides the past that `query` needs to begin with `start`.

    Args:
        read: the sources of which anything may have been read; the others begin with the query.

    Raises:
        PenstockError: P0607, P0703 where nothing provides it.
    """
    known = [source for source in _timed(query) if source.name in read]
    if start.mode is StartMode.AT:
        raise _not_kept(query, "its past as of an instant")
    if start.mode is StartMode.NOW or not known:
        return PastProvider.NONE
    if start.mode is StartMode.BEGINNING:
        _check_rereadable(query, known)
        return PastProvider.SOURCES
    raise _not_kept(query, f"the recent past of {known[0].name}")


def _timed(query: Query) -> list[Source]:
    return [source for source in declared_sources(query.root).values() if not source.is_static]


def _not_kept(query: Query, what: str) -> PenstockError:
    return PenstockError(
        "P0703", f"query {query.name} cannot begin: {what} is not kept", hint="START NOW, or START BEGINNING"
    )


def _check_rereadable(query: Query, sources: Collection[Source]) -> None:
    """Check that the past of `sources` can be read again. Raises PenstockError P0607."""
    for source in sources:
        if source.system_time:
            raise PenstockError(
                "P0607",
                f"query {query.name} cannot read its past: {source.name} is of SYSTEM TIME, "
                "and when its elements came is not kept",
                hint="start without --backfill: the query begins from here on",
            )
    for source in sources:
        if not is_rereadable(source):
            raise PenstockError(
                "P0607",
                f"query {query.name} cannot read its past: what has been read of {source.name} is not kept",
                hint="start without --backfill: the query begins from here on",
            )
