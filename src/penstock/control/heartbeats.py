"""Heartbeats that are posted: by ADVANCE, and by the door for one.

Whether a heartbeat has an effect depends on the records before it, of which some may not have been read. One is refused
as too far ahead only where nothing has been posted that was not read; otherwise the ingest decides, and it may become a
dead letter.
"""

from __future__ import annotations

import datetime as dt

from penstock.algebra.nodes.scans import Source
from penstock.control.engine import Engine
from penstock.control.posted_rows import PostedRows
from penstock.errors import Notice, PenstockError
from penstock.language.binder.statements.heartbeats import far_ahead, without_heartbeats
from penstock.types import MOST_TICKS, microseconds_of


def check_stream(source: Source) -> None:
    """Raise PenstockError P0380 for a source without heartbeats."""
    if (error := without_heartbeats(source)) is not None:
        raise error


def complete_to(engine: Engine, posted: PostedRows, source: Source, source_id: int) -> int | None:
    """Return up to which tick a stream is complete; None before its first element, and where something has been posted
    to it that the engine has not read."""
    beat = engine.version().sources.get(source.name.lower())
    return beat if engine.has_read(source_id, posted.last(source_id)) else None


def check_heartbeat(source: Source, tick: int, beat: int | None) -> None:
    """Raise PenstockError P0380 for a heartbeat that is too far ahead for sure.

    Args:
        beat: up to which tick the stream is complete, all that was posted having been read; None before its first
            element.
    """
    if source.ahead is None or beat is None or source.domain is None:
        return
    # The largest timestamp is at most so far beyond.
    largest = beat + source.slack + 1
    if tick > largest + source.ahead:
        shown, limit = source.domain.show, source.domain.show_length(source.ahead)
        message = f"{shown(tick)} is further ahead of {source.name} than ADVANCE AT MOST {limit} allows"
        hint = f"nothing was posted; its largest timestamp is at most {shown(largest)}"
        raise PenstockError("P0380", message, hint=hint)


def tick_of(source: Source, ts: int | str) -> int:
    """Return the timestamp of a heartbeat in ticks. Raises PenstockError P0102."""
    domain = source.domain
    assert domain is not None, "it has heartbeats"
    if domain.calendar != isinstance(ts, str):
        hint = 'as in "2026-01-31T12:00:00Z"' if domain.calendar else "a number of ticks, such as 5"
        what = "timestamps" if domain.calendar else "integers"
        raise PenstockError("P0102", f"{source.name} is stamped by {what}: {ts!r} is none", hint=hint)
    if isinstance(ts, str):
        try:
            tick = microseconds_of(dt.datetime.fromisoformat(ts))
        except (ValueError, OverflowError):
            message = f"{ts[:100]!r} is no timestamp"
            raise PenstockError("P0102", message, hint='as in "2026-01-31T12:00:00Z"') from None
    else:
        tick = ts
    if not -MOST_TICKS < tick < MOST_TICKS:
        raise PenstockError("P0102", f"{ts} exceeds the range of time", hint="a timestamp is below 2⁶¹ ticks")
    return tick


def heartbeat_notices(source: Source, tick: int, beat: int | None) -> tuple[Notice, ...]:
    """Return what is to be known of a heartbeat that is taken: it does nothing, or is far ahead of the clock. beat: up
    to which tick the stream was complete before it, None where it was not."""
    if beat is None or tick > beat or source.domain is None:
        ahead = far_ahead(source, tick)
        return () if ahead is None else (Notice(ahead),)
    return (Notice(f"nothing changes: {source.name} is complete up to {source.domain.show(beat)} already"),)
