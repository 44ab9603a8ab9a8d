"""A window as written to the algebra's window: lengths become ticks of the stream's domain (docs/language/windows.md).

PARTITION BY and WHERE see only the columns of their stream. WHERE selects before the window, so rows that it drops
never enter the window.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from penstock.algebra import (
    Algebra,
    FrequencyWindow,
    RowWindow,
    Select,
    StreamToRelation,
    TimeModelWindow,
    Window,
    WindowKind,
    unbounded,
)
from penstock.expressions.nodes import Column
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.from_.durations import count, ticks
from penstock.language.binder.from_.frequency import Jumping, columns_of_partition, picked
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Scope
from penstock.language.dialect import span_of
from penstock.language.queries import Align, Count, Duration, Extent, FrequencyClause, WindowClause
from penstock.language.text import TextSpan
from penstock.types import CALENDAR, Interval, TimeDomain, microseconds_of


def bind_window(
    spec: WindowClause | None, stream: Algebra, context: Context, entries: Sequence[Entry]
) -> StreamToRelation:
    """Return the window over `stream`, whose columns are `entries`; without a clause the window is UNBOUNDED. Raises
    BindingFailed with the errors recorded: P0102, P0303, or errors in PARTITION BY and WHERE.
    """
    if spec is None:
        return unbounded(stream)
    if spec.lost:
        context.fail_silently()
    scope = Scope(tuple(entries))
    # All are bound, so that all errors are reported.
    partition = context.attempt(lambda: _partition(spec, scope, context))
    selected = context.attempt(lambda: _selected(spec, stream, scope, context))
    below, columns = selected or stream, partition or ()
    bound: StreamToRelation
    if spec.frequency is None:
        bound = _over(spec, below, columns, context)
    else:
        bound = _often(spec, spec.frequency, below, columns, scope, context)
    if partition is None or selected is None:
        raise BindingFailed
    return bound


def before_window(spec: WindowClause, stream: Algebra, context: Context, entries: Sequence[Entry]) -> Algebra:
    """Return the elements that the WHERE of a window keeps."""
    return _selected(spec, stream, Scope(tuple(entries)), context)


def partition_of(spec: WindowClause, context: Context, entries: Sequence[Entry]) -> tuple[int, ...]:
    """Return the positions of the columns of PARTITION BY."""
    return _partition(spec, Scope(tuple(entries)), context)


def check_window(spec: WindowClause | None, context: Context) -> None:
    """Report errors in the numbers of a window over a query that could not be bound."""
    lengths = () if spec is None else (spec.length, spec.slide, spec.span_limit)
    for length in lengths:
        if isinstance(length, Count):
            context.attempt(lambda: count(length, context))  # noqa: B023


def _often(
    spec: WindowClause,
    frequency: FrequencyClause,
    stream: Algebra,
    partition: tuple[int, ...],
    scope: Scope,
    context: Context,
) -> FrequencyWindow:
    """Return a jumping window, or the window of all tuples that a frequency without an extent picks of the stream."""
    if spec.extent is not None:
        return Jumping(spec, frequency, partition, stream.domain or CALENDAR, context).over(stream, scope)
    _refuse_beside_frequency(spec, context)
    by = columns_of_partition(frequency, scope, context)
    return FrequencyWindow(picked(frequency, stream, by, context))


def _refuse_beside_frequency(spec: WindowClause, context: Context) -> None:
    """Reject window clauses beside `[FREQUENCY F]` alone, which is no window."""
    for word, clause in (("SLIDE", spec.slide), ("ALIGN TO", spec.align), ("INTERNAL", spec.internal)):
        if clause is not None:
            message = f"{word} belongs to a window; FREQUENCY alone picks elements of the stream"
            context.fail("P0102", message, clause.span, "write the window before it: [RANGE 1 MINUTE, FREQUENCY ...]")


def _over(spec: WindowClause, stream: Algebra, partition: tuple[int, ...], context: Context) -> TimeModelWindow:
    domain = stream.domain or CALENDAR
    slide, align = _slide(spec, domain, context)
    if isinstance(spec.length, Count):
        rows = count(spec.length, context)
        step = count(spec.slide, context) if isinstance(spec.slide, Count) else None
        limit = None if spec.span_limit is None else ticks(spec.span_limit, domain, context)
        return RowWindow(stream, rows, step, partition, limit, slide, align)
    length = spec.length if spec.span_limit is None else spec.span_limit
    if isinstance(spec.slide, Count):
        step = count(spec.slide, context)
        if partition:
            message = (
                "SLIDE in rows after PARTITION BY needs ROWS: a RANGE applies to all partitions and counts no rows"
            )
            context.fail("P0102", message, spec.slide.span, "leave out PARTITION BY, or write PARTITION BY c ROWS n")
        span = ticks(length, domain, context) if isinstance(length, Duration) else None
        return RowWindow(stream, None, step, (), 1 if spec.extent is Extent.NOW else span, None, align)
    if isinstance(length, Duration):
        window = Window(stream, WindowKind.RANGE, ticks(length, domain, context), slide, align)
        if spec.slide is not None and slide is not None and (window.length or slide) < slide:
            message = "SLIDE is longer than RANGE: elements between two windows are in none"
            context.warn(message, spec.slide.span, "so that each element is in a window, RANGE is as long or longer")
        return window
    kind = WindowKind.NOW if spec.extent is Extent.NOW else WindowKind.UNBOUNDED
    return Window(stream, kind, None, slide, align)


def _partition(spec: WindowClause, scope: Scope, context: Context) -> tuple[int, ...]:
    """Return the positions of the PARTITION BY columns. A window in time is the same of every partition and of the
    whole.
    """
    binder = ExpressionBinder(scope, context, "PARTITION BY")
    columns: list[int] = []
    for bound, node in zip(context.each(binder.bind, spec.partition), spec.partition, strict=True):
        if not isinstance(bound, Column):
            hint = "name it in a stream of its own, as in WITH t AS (ISTREAM(SELECT *, UPPER(a) AS b FROM s [NOW]))"
            context.fail("P0102", "PARTITION BY takes columns of the stream", span_of(node), hint)
        if bound.index not in columns:
            columns.append(bound.index)
    return tuple(columns)


def _selected(spec: WindowClause, stream: Algebra, scope: Scope, context: Context) -> Algebra:
    if spec.where is None:
        return stream
    return Select(stream, ExpressionBinder(scope, context, "WHERE").predicate(spec.where, "WHERE"))


def _slide(spec: WindowClause, domain: TimeDomain, context: Context) -> tuple[int | None, int]:
    """Return the SLIDE in time, and the origin of its boundaries."""
    slide = ticks(spec.slide, domain, context) if isinstance(spec.slide, Duration) else None
    if spec.align is None:
        return slide, 0
    if slide is None:
        hint = "it shifts the boundaries of SLIDE: [RANGE 1 HOUR SLIDE 10 MINUTE ALIGN TO ...]"
        context.fail("P0102", "ALIGN TO needs a SLIDE", spec.align.span, hint)
    return slide, _align(spec.align, domain, context) % slide


def _align(align: Align, domain: TimeDomain, context: Context) -> int:
    to = align.to
    if isinstance(to, int):
        return to
    if isinstance(to, Interval):
        return context.guard(align.span, lambda: domain.ticks(to))
    if not domain.calendar:
        context.fail("P0102", "the ticks of this stream are integers: ALIGN TO takes one, or an interval", align.span)
    return moment(to, align.span, context)


def moment(text: str, span: TextSpan, context: Context) -> int:
    """Return a timestamp in microseconds since 1970. Raises BindingFailed after P0102."""
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        context.fail("P0102", f"{text!r} is no timestamp", span, "write it as '2020-01-31 12:00:00'")
    return microseconds_of(when)
