"""Bind VALID UNTIL NEXT [semantics 4.5]: the period of an element lasts until the next one, whose arrival sets its end.

Where the query reads only periods that have ended, they are a stream of elements that arrive at their end, over which
the window stands. Else a row has an open period first, and is replaced by one with its end.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Algebra, EndedPeriods, Lasting, Lives, RowWindow, UntilNext, Window
from penstock.expressions.coercion import BIGINT
from penstock.language.binder.context import Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.scope import Entry, PeriodBound, Scope
from penstock.language.queries import ValidClause
from penstock.language.text import TextSpan
from penstock.types import CALENDAR, TIMESTAMP

_KINDS = "a window in time, [VALID], or WHERE CLOSED(VALID(s)), which takes any window"


def periods_until_next(
    node: Algebra,
    valid: ValidClause,
    name: str,
    entries: tuple[Entry, ...],
    context: Context,
    closed: bool,
    listed: bool,
    span: TextSpan,
) -> tuple[Algebra, PeriodBound]:
    """Return the elements with their periods in two more columns. Raises BindingFailed with the errors recorded.

    Args:
        node: the window over the stream, or the stream itself for `[VALID]`.
        name, span: of the source, for messages.
        closed: only those that have ended; listed: they are coalesced then.
    """
    domain = node.domain or CALENDAR
    most = None if valid.at_most is None else ticks(valid.at_most, domain, context)
    scope = Scope(entries)
    found = context.each(lambda column: scope.resolve(column, None, context), valid.by)
    by = tuple(dict.fromkeys(entry.index for entry in found))
    bound = PeriodBound(TIMESTAMP if domain.calendar else BIGINT, domain, not closed)
    if node.is_stream:
        return UntilNext(node, by, most, Lives.CURRENT), bound
    ends_known = closed and not listed
    if not isinstance(node, Window) and not (ends_known and isinstance(node, RowWindow)):
        message = f"{name} is VALID UNTIL NEXT, under a window that counts or picks rows"
        context.fail("P0370", message, span, f"take {_KINDS}")
    below = node.input
    if ends_known:
        return replace(node, input=EndedPeriods(below, by, most)), bound
    assert isinstance(node, Window)
    lives = Lives.BOTH if closed else Lives.WINDOW
    return UntilNext(below, by, most, lives, node.lifetime, node.slide, node.align), bound


def lasting(node: Algebra, window: Algebra, least: int | None) -> Algebra:
    """Return the rows of `node` whose period has lasted for `least` ticks; all of them where it is None. window: has
    the boundaries at which its content changes."""
    if least is None:
        return node
    slide, align = (window.slide, window.align) if isinstance(window, Window) else (None, 0)
    return Lasting(node, least, slide, align)
