"""Which sources have heartbeats."""

from __future__ import annotations

import time

from penstock.algebra import Source
from penstock.errors import PenstockError

#: Years, and microseconds of one, that a heartbeat may be ahead of the clock without a word.
_MOST_YEARS, _YEAR = 100, 31_556_952_000_000


def far_ahead(source: Source, tick: int) -> str | None:
    """Return what is to be known of a heartbeat that is far ahead of the clock; None for one that is not, and for time
    in integers, which no clock has."""
    if source.domain is None or not source.domain.calendar:
        return None
    years = (tick - time.time_ns() // 1000) // _YEAR
    if years < _MOST_YEARS:
        return None
    return f"the heartbeat is {years:,} years ahead of the clock; rows before it are late from now on"


def without_heartbeats(source: Source) -> PenstockError | None:
    """Return the error for a heartbeat of a source that takes none: a relation, or a stream of SYSTEM TIME."""
    if not source.is_stream:
        hint = "updates advance the time of a relation; ADVANCE a stream that is read beside it"
        return PenstockError("P0380", f"{source.name} is a relation, and a stream has heartbeats", hint=hint)
    if not source.has_timestamps:
        message = f"{source.name} is a stream of SYSTEM TIME, which takes no heartbeats"
        return PenstockError("P0380", message, hint="the wall clock advances its time")
    return None
