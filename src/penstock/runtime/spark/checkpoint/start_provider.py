"""Decide from where a query that begins in a running job gets the past of its sources."""

from __future__ import annotations

import enum
from collections.abc import Collection

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import declared_sources


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
