"""GAPS OF a source: the periods between those of its values."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Algebra, Closing, Gaps, Lasting, Select, StreamToRelation
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import BIGINT, is_integer
from penstock.expressions.nodes import Column, Literal
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.from_.periods import PeriodSource, Timed
from penstock.language.binder.scope import Entry
from penstock.language.queries import Duration, Mark
from penstock.types import CALENDAR


def gaps_between(
    source: PeriodSource,
    timed: Timed,
    coalesced: tuple[Algebra, tuple[Entry, ...]],
    closed: bool,
    mark: Mark,
    least: Duration | None,
) -> tuple[Timed, Algebra, tuple[Entry, ...]]:
    """Return the gaps between the stretches of `coalesced`, with their columns. Raises BindingFailed with the errors
    recorded.

    Args:
        timed: the rows that are coalesced.
        closed: only the gaps that have ended.
        least: the shortest gap, None for any.
    """
    context = source.context
    node, entries = coalesced
    domain = source.domain
    if not closed and domain is not None and domain.calendar == is_integer(timed.bound.type):
        message = "an open gap is there when its period has begun: it and the query are of different time domains"
        context.fail("P0302", message, mark.span, "WHERE CLOSED(VALID(..)) takes those that have ended")
    bound = replace(timed.bound, open=not closed)
    gaps: Algebra = Gaps(node, timed.closing or _at_ends(source), closed)
    if least is not None:
        most = ticks(least, timed.bound.domain or domain or CALENDAR, context)
        gaps = _at_least(gaps, most)
    entries = tuple(replace(e, bound=bound) if e.bound is not None else e for e in entries)
    return replace(timed, bound=bound), gaps, entries


def _at_least(gaps: Algebra, least: int) -> Algebra:
    """Return the gaps of `least` ticks or more; an open one from that instant on at which it is so long."""
    assert isinstance(gaps, Gaps)
    if not gaps.only_ended:
        return Lasting(gaps, least, gaps.closing.slide, gaps.closing.align)
    width = len(gaps.schema)
    begin, end = Column(BIGINT, width - 2, "begin"), Column(BIGINT, width - 1, "end")
    return Select(gaps, build_call("GE", [end, build_call("ADD", [begin, Literal(BIGINT, least)])]))


def _at_ends(source: PeriodSource) -> Closing:
    """Return when the end of a stretch is past, of periods that may begin at any time."""
    window = source.node
    return Closing(window.slide, window.align) if isinstance(window, StreamToRelation) else Closing()
