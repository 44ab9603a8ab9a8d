"""A window as written to the algebra's window: lengths become ticks of the stream's domain (LANGUAGE 1, 4.1)."""

from __future__ import annotations

import datetime as dt

from penstock.algebra import Algebra, Window, WindowKind
from penstock.language.binder.context import Context
from penstock.language.queries import Align, Duration, Extent, WindowSpec
from penstock.types import CALENDAR, Interval, TimeDomain

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def bind_window(spec: WindowSpec | None, stream: Algebra, context: Context) -> Window:
    """The window over `stream`; no window written is UNBOUNDED. Raises Refused after P0102 or P0303."""
    if spec is None or spec.extent in (None, Extent.ROWS):
        # What is no time window has been refused; the rest of the query is bound as if it were unbounded.
        return Window(stream, WindowKind.UNBOUNDED)
    domain = stream.domain or CALENDAR
    length = None
    if spec.extent is Extent.RANGE and isinstance(spec.length, Duration):
        length = ticks(spec.length, domain, context)
    elif spec.extent is Extent.RANGE:
        return Window(stream, WindowKind.UNBOUNDED)
    slide = ticks(spec.slide, domain, context) if isinstance(spec.slide, Duration) else None
    align = 0
    if spec.align is not None:
        if spec.slide is None:
            context.fail("P0102", "ALIGN TO needs a SLIDE", spec.align.span)
        align = _align(spec.align, domain, context)
        if slide is not None:
            align %= slide
    return Window(stream, WindowKind[spec.extent.name], length, slide, align)


def ticks(duration: Duration, domain: TimeDomain, context: Context) -> int:
    """A positive length in ticks."""
    found = context.guard(duration.span, lambda: domain.ticks(duration.interval))
    if found < 1:
        context.fail("P0102", "a length of time here is at least one tick", duration.span)
    if found >= 2**60:
        context.fail("P0102", "this is longer than time lasts", duration.span)
    return found


def _align(align: Align, domain: TimeDomain, context: Context) -> int:
    to = align.to
    if isinstance(to, int):
        return to
    if isinstance(to, Interval):
        return context.guard(align.span, lambda: domain.ticks(to))
    if not domain.calendar:
        context.fail("P0102", "the ticks of this stream are integers: ALIGN TO takes one, or an interval", align.span)
    try:
        when = dt.datetime.fromisoformat(to)
    except ValueError:
        context.fail("P0102", f"{to!r} is no timestamp", align.span, "write it as '2020-01-31 12:00:00'")
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return (when - _EPOCH) // dt.timedelta(microseconds=1)
