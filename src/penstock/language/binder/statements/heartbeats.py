"""Which sources have heartbeats."""

from __future__ import annotations

from penstock.algebra import Source
from penstock.errors import PenstockError


def without_heartbeats(source: Source) -> PenstockError | None:
    """Return the error for a heartbeat of a source that takes none: a relation, or a stream of SYSTEM TIME."""
    if not source.is_stream:
        hint = "updates advance the time of a relation; ADVANCE a stream that is read beside it"
        return PenstockError("P0380", f"{source.name} is a relation, and a stream has heartbeats", hint=hint)
    if source.timestamp is None:
        message = f"{source.name} is a stream of SYSTEM TIME, which takes no heartbeats"
        return PenstockError("P0380", message, hint="the wall clock advances its time")
    return None
