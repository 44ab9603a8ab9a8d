"""TUMBLE, HOP and CUMULATE of a source in FROM: the columns of windows beside its own (docs/language/windows.md)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.algebra import Algebra, Project, Restamp, Select, UnionAll
from penstock.algebra.nodes.restamp import WINDOW_COLUMNS
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import BIGINT, DATE, is_integer
from penstock.expressions.nodes import Expression, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.from_.durations import ticks
from penstock.language.binder.scalars.periods import instant, ticks_of
from penstock.language.binder.scope import Entry, Scope
from penstock.language.queries import Count, Duration, WindowTable, WindowTableClause
from penstock.types import CALENDAR, TIMESTAMP, Field, TimeDomain, type_name

#: The most windows that one row of a relation is in.
MOST_WINDOWS = 1_000


def window_table(
    clause: WindowTableClause, node: Algebra, names: Sequence[str], qualifier: str | None, context: Context
) -> tuple[Algebra, tuple[str, ...], int]:
    """Return a source with the columns of its windows, the names of its columns, and which of them the call names.
    Raises BindingFailed after P0202, P0303 or P0328."""
    word = clause.kind.value
    entries = tuple(Entry(i, n, f.type, qualifier) for i, (n, f) in enumerate(zip(names, node.schema, strict=True)))
    time = Scope(entries).resolve(clause.time, None, context)
    if node.is_stream and node.timestamps.get(time.index) != 0:
        known = [entries[column].name for column, offset in node.timestamps.items() if offset == 0]
        message = f"{word} of a stream takes its timestamp, which {clause.time.text} is not"
        hint = f"it is {known[0]}" if known else "select the column of TIMESTAMP BY too; a query in FROM may rename it"
        context.fail("P0328", message, clause.time.span, hint)
    if not node.is_stream and clause.grouped:
        hint = f"group by DATE_TRUNC('hour', {clause.time.text}), or read a stream"
        context.fail("P0328", f"{word} in GROUP BY is over a stream; this is a relation", clause.span, hint)
    lengths = _Lengths(clause, node.domain, time, context)
    columns = (*names, *WINDOW_COLUMNS)
    if node.is_stream:
        cumulative = clause.kind is WindowTable.CUMULATE
        return Restamp(node, lengths.whole, lengths.slide, lengths.offset, cumulative), columns, time.index
    return _of_relation(clause, node, time, lengths, context), columns, time.index


class _Lengths:
    """The lengths of a call in ticks.

    whole: of a window, or of the longest; slide: from one window to the next, or the step by which they grow; offset:
    the first start from tick 0 on.
    """

    def __init__(self, clause: WindowTableClause, domain: TimeDomain | None, time: Entry, context: Context) -> None:
        integer = is_integer(time.type)
        self._context = context
        self._domain = CALENDAR if domain is None or domain.calendar == integer else domain
        self._bare = integer and (domain is None or domain.calendar)
        *before, last = clause.lengths
        self.whole = self._ticks(last)
        self.slide = self._ticks(before[0]) if before else self.whole
        if self.whole % self.slide:
            what = "step" if clause.kind is WindowTable.CUMULATE else "slide"
            hint = f"the {what} comes first, then the length; gaps and other lengths have windows in brackets"
            message = f"the length of {clause.kind.value} is a multiple of its {what}"
            context.fail("P0328", message, last.span, hint)
        between = self.whole if clause.kind is WindowTable.CUMULATE else self.slide
        self.offset = 0 if clause.offset is None else self._ticks(clause.offset, 0) % between

    def _ticks(self, written: Duration | Count, least: int = 1) -> int:
        if isinstance(written, Duration):
            if self._bare:
                hint = "a number is in the units of the column, as in TUMBLE(r, at, 60)"
                self._context.fail("P0328", "the column counts no known unit of time", written.span, hint)
            return ticks(written, self._domain, self._context, least, "P0328")
        if written.value < least:
            hint = f"the shortest one here is {self._domain.show_length(1)}"
            self._context.fail("P0328", "a length of time here is at least one tick", written.span, hint)
        return written.value


def _of_relation(clause: WindowTableClause, node: Algebra, time: Entry, lengths: _Lengths, context: Context) -> Algebra:
    """Return the rows of a relation with the columns of their windows, one copy for each window that holds them."""
    if not (is_integer(time.type) or pa.types.is_timestamp(time.type) or time.type == DATE):
        message = f"{clause.kind.value} takes a time or an integer; {clause.time.text} is {type_name(time.type)}"
        context.fail("P0328", message, clause.time.span, "CAST it to TIMESTAMP")
    copies = lengths.whole // lengths.slide
    if copies > MOST_WINDOWS:
        message = f"each row of a relation would be in {copies:,} windows; the most are {MOST_WINDOWS:,}"
        context.fail("P0105", message, clause.span, "take a longer slide, or read a stream")
    at = ticks_of(time.column())
    cumulative = clause.kind is WindowTable.CUMULATE
    between = lengths.whole if cumulative else lengths.slide
    since = build_call("PMOD", [build_call("SUB", [at, _number(lengths.offset)]), _number(between)])
    first = build_call("SUB", [at, since])
    own = tuple(Entry(i, f.name, f.type).column() for i, f in enumerate(node.schema))
    shown = BIGINT if is_integer(time.type) else TIMESTAMP
    fields = (*node.schema.fields, *(Field(name, shown) for name in WINDOW_COLUMNS))
    members: list[Algebra] = []
    for copy in range(copies):
        if cumulative:
            start, end = first, build_call("ADD", [first, _number((copy + 1) * lengths.slide)])
            rows: Algebra = Select(node, build_call("LT", [at, end]))
        else:
            start = build_call("SUB", [first, _number(copy * lengths.slide)])
            end, rows = build_call("ADD", [start, _number(lengths.whole)]), node
        last = build_call("SUB", [end, _number(1)])
        members.append(Project(rows, (*own, *(instant(one, shown) for one in (start, end, last))), fields))
    return members[0] if len(members) == 1 else UnionAll(tuple(members))


def _number(value: int) -> Expression:
    return Literal(BIGINT, value)
