"""Decide from where a query that begins in a running job gets the past of its sources, and say so."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import declared_sources
from penstock.runtime.spark.checkpoint.epochs import Epoch


class PastProvider(enum.Enum):
    """What provides the past of a query's sources."""

    #: The query needs none.
    NONE = "none"
    #: What the run has read of the sources, as far as it can be read again (`catching_up/`).
    SOURCES = "sources"


def past_provider(query: Query, start: Start, read: Collection[str]) -> PastProvider:
    """Return what provides the past that `query` needs to begin with `start`.

    Args:
        read: the sources of which anything may have been read; the others begin with the query.
    """
    sources = declared_sources(query.root).values()
    known = any(source.name in read for source in sources if not source.is_static)
    return PastProvider.NONE if start.mode is StartMode.NOW or not known else PastProvider.SOURCES


def notices_of_change(
    before: Epoch,
    new_queries: Sequence[str],
    ended_queries: Sequence[str],
    backfill: Sequence[str],
    requested: Collection[str],
) -> tuple[str, ...]:
    """Return the messages about a change. requested: queries whose start the user has chosen."""
    notices = []
    for name in new_queries:
        change = f"query {name} has changed" if name in before.queries else f"query {name} is new"
        if name in backfill:
            notices.append(f"{change}: it reads its past first, then goes on with the others")
        elif name in requested:
            notices.append(f"{change}: it sees what its sources give from here on")
        else:
            notices.append(
                f"warning: {change}: it starts afresh and sees only what its sources give from here on "
                "(--backfill lets it read their past first)"
            )
    return (*notices, *(f"query {name} is no longer in the script: its state is dropped" for name in ended_queries))
