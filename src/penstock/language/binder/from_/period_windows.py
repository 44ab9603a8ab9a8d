"""Windows that periods decide [semantics 4.5]: `[VALID]`, and `[PARTITION BY .. SESSION g]`."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Algebra, Begins, Project, SessionWindow, UntilNext, ValidWindow
from penstock.expressions.coercion import BIGINT, is_integer
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.from_.periods import PeriodSource, Timed
from penstock.language.binder.from_.windows import before_window, partition_of
from penstock.language.binder.scalars.periods import TWO_DOMAINS
from penstock.language.binder.scope import PeriodBound, Scope
from penstock.language.queries import Count, Duration, Extent, Length, Name, ValidClause, WindowClause
from penstock.types import CALENDAR, TIMESTAMP, Field


def windowed_by_period(source: PeriodSource, valid: ValidClause | None) -> Timed:
    """Return the relation of a source under one of these windows, with the period of each row. Raises BindingFailed
    with the errors recorded.
    """
    window, context = source.window, source.context
    assert window is not None
    if window.internal is not None or window.frequency is not None:
        word, place = ("INTERNAL", window.internal) if window.internal is not None else ("FREQUENCY", window.frequency)
        assert place is not None
        hint = "results must end, when their period does"
        shown = "a session window" if window.extent is Extent.SESSION else "[VALID]"
        context.fail("P0374", f"{shown} beside {word} has no meaning", place.span, hint)
    if window.extent is Extent.SESSION:
        return _sessions(source, window, context)
    if window.slide is not None:
        hint = "a row is in it while it is in its period; leave SLIDE out"
        context.fail("P0102", "[VALID] takes no SLIDE", window.slide.span, hint)
    rows = (
        source if source.stream is None else source.over(before_window(window, source.stream, context, source.entries))
    )
    timed = rows.timed(valid)
    if timed is None:
        source.without_valid_time(source.span)
    domain = rows.node.domain
    if domain is not None and domain.calendar == is_integer(timed.bound.type):
        message = "[VALID] compares the period with the time of the query: they are of different time domains"
        context.fail("P0302", message, window.span, TWO_DOMAINS)
    if isinstance(timed.node, UntilNext):
        return replace(timed, closing=None)
    longest = None if timed.closing is None else timed.closing.longest
    return Timed(ValidWindow(timed.node, longest), timed.bound, Begins.ANY)


def _sessions(source: PeriodSource, window: WindowClause, context: Context) -> Timed:
    if source.stream is None:
        hint = "a window belongs to a stream; leave it out"
        context.fail("P0301", f"{source.name} is a relation, which has no window", window.span, hint)
    if window.slide is not None:
        hint = "it moves with the elements; its sessions are emitted when they end"
        context.fail("P0375", "a session window takes no SLIDE", window.slide.span, hint)
    written = window.time
    if written is not None:
        context.attempt(lambda: _check_time(source, written))
    domain = source.domain or CALENDAR
    assert isinstance(window.length, Duration | Length) and not isinstance(window.length, Count)
    partition = partition_of(window, context, source.entries)
    source.warn_of_bare(window.length, "SESSION")
    gap, fixed = source.length(window.length, domain)
    most = None if window.at_most is None else ticks(window.at_most, domain, context)
    shortest = gap.value if fixed and isinstance(gap, Literal) else None
    if window.at_most is not None and most is not None and shortest is not None and most <= shortest:
        hint = "it bounds the whole session, from its first element on; leave it out for no bound"
        context.fail("P0375", "AT MOST must be longer than the gap", window.at_most.span, hint)
    stream = before_window(window, source.stream, context, source.entries)
    below = _with_gap(stream, gap)
    node = SessionWindow(below, partition, shortest, most, window.open is not None)
    return Timed(node, PeriodBound(TIMESTAMP if domain.calendar else BIGINT, domain), Begins.TIMESTAMP)


def _check_time(source: PeriodSource, written: Name) -> None:
    """Check that a session window as others write it is over the timestamps of the stream."""
    entry = Scope(source.entries).resolve(written, None, source.context)
    stamp = None if source.stream is None else source.stream.timestamp_column
    if entry.index != stamp:
        known = "" if stamp is None else f": {source.entries[stamp].name}"
        message = f"a session window is over the timestamps of {source.name}{known}"
        source.context.fail("P0375", message, written.span, "declare another stream that is TIMESTAMP BY that column")


def _with_gap(stream: Algebra, gap: Expression) -> Algebra:
    columns = tuple(Column(f.type, i, f.name) for i, f in enumerate(stream.schema))
    return Project(stream, (*columns, gap), (*stream.schema.fields, Field("gap", BIGINT)))
