"""The valid time of a source in FROM [semantics 4.5], and the coalescing on its list of columns [semantics 4.5].

The period of every row becomes two columns behind those of the source, in ticks. They are added only where the query
reads them.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import (
    Algebra,
    ArrivalTime,
    Begins,
    Closing,
    Coalesce,
    Project,
    RelationScan,
    RowWindow,
    Source,
    StreamScan,
    StreamToRelation,
    Window,
    unbounded,
)
from penstock.algebra.nodes.base import arrival_column
from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.coercion import BIGINT, DATE, is_integer, is_numeric
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.from_.durations import refuse_short, ticks
from penstock.language.binder.from_.until_next import periods_until_next
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.periods import never, ticks_of, without_valid_time
from penstock.language.binder.scalars.stars import star_columns
from penstock.language.binder.scope import Entry, PeriodBound, Scope
from penstock.language.dialect import span_of
from penstock.language.grammar.fragments import parse_query_tree
from penstock.language.queries import (
    Duration,
    Item,
    Length,
    NamedSource,
    SelectQuery,
    Star,
    ValidClause,
    WindowClause,
)
from penstock.language.text import TextSpan
from penstock.types import CALENDAR, END, TIMESTAMP, Field, Interval, TimeDomain, exact, type_name

_DAY = 86_400_000_000
#: What has the items, for messages.
_LIST = "a list of columns"
_READ = re.compile(r"\bVALID\s*\(([^()]*)\)", re.IGNORECASE)
_CONVERTED = "declare both of one type; WITH q AS (SELECT CAST(b AS TIMESTAMP) AS x_to, ..) converts one of a query"


@functools.lru_cache(maxsize=16)
def read_periods(text: str) -> frozenset[str]:
    """Return the names, in lower case, whose VALID(..) a text may read."""
    return frozenset(
        name.strip().strip("`").lower() for match in _READ.finditer(text) for name in match.group(1).split(",")
    )


@dataclass(frozen=True)
class Timed:
    """A relation whose last two columns are the period of each row. bound: how these are shown; begins: what is known
    of them; closing: when stretches are closed, None where they never are; ended: whether all periods have ended."""

    node: Algebra
    bound: PeriodBound
    begins: Begins
    closing: Closing | None = None
    ended: bool = False


@dataclass(frozen=True)
class PeriodSource:
    """What is known of a source in FROM. stream: its elements, None for a relation; node: the relation, of a stream its
    window; entries: its columns; window: as written; name: for messages;
    declared: the VALID clause of its declaration as text, empty without one; None for a query."""

    node: Algebra
    stream: Algebra | None
    entries: tuple[Entry, ...]
    window: WindowClause | None
    name: str
    span: TextSpan
    context: Context
    declared: str | None

    @property
    def domain(self) -> TimeDomain | None:
        return self.node.domain

    def over(self, stream: Algebra) -> PeriodSource:
        """Return the same of the elements of `stream`, without a window."""
        return replace(self, node=stream, stream=stream)

    def timed(self, valid: ValidClause | None, closed: bool = False, listed: bool = False) -> Timed | None:
        """Return the relation with its period: by the clause `valid`, by two columns of these names, or the granule;
        None where it has none. closed: the query takes closed periods alone; listed: it coalesces them."""
        if valid is None and self.declared:
            valid = parsed_valid(self.declared)
        elif valid is not None and valid.length is not None:
            self.warn_of_bare(valid.length, "FOR")
        if valid is not None:
            if valid.length is not None:
                return self._lasting(valid, valid.length)
            if valid.until_next is not None:
                return self._until_next(valid, closed, listed)
            return self._from_columns(valid)
        return self._pair() or self._granule()

    # --- VALID UNTIL NEXT

    def _until_next(self, valid: ValidClause, closed: bool, listed: bool) -> Timed:
        if self.stream is None:
            hint = "its rows have no timestamp at which the next one could come: VALID FROM a TO b"
            self.context.fail("P0371", f"{self.name} is a relation", valid.span, hint)
        if self.window is not None and self.window.internal is not None and not (closed and not listed):
            hint = "results must end, when their period does; WHERE CLOSED(VALID(s)) takes those that have ended"
            message = "VALID UNTIL NEXT under an INTERNAL window has no meaning"
            self.context.fail("P0374", message, self.window.internal.span, hint)
        node, bound = periods_until_next(
            self.node, valid, self.name, self.entries, self.context, closed, listed, self.span
        )
        ended = closed and not listed
        return Timed(node, bound, Begins.UNTIL_NEXT, None if node.is_stream else Closing(longest=0), ended)

    # --- VALID FOR

    def _lasting(self, valid: ValidClause, written: Duration | Length) -> Timed:
        if self.stream is None:
            hint = "its rows have no timestamp that a length could begin at: VALID FROM a TO b"
            self.context.fail("P0371", f"{self.name} is a relation", valid.span, hint)
        node, begin = self._stamped()
        domain = self.domain or CALENDAR
        length, fixed = self.length(written, domain)
        end = build_call("ADD", [begin, length])
        type_ = TIMESTAMP if domain.calendar else BIGINT
        begins = Begins.FIXED if fixed else Begins.TIMESTAMP
        return self._with(node, begin, end, PeriodBound(type_, domain), begins, length)

    def length(self, written: Duration | Length, domain: TimeDomain) -> tuple[Expression, bool]:
        """Return a length in ticks, and whether it is the same for every row."""
        if isinstance(written, Duration):
            return Literal(BIGINT, ticks(written, domain, self.context)), True
        bound = fold(ExpressionBinder(Scope(self.entries), self.context, "FOR").bind(written.value))
        if not is_integer(bound.type):
            hint = "as in 10 SECONDS, or column SECONDS"
            if is_numeric(bound.type):
                hint += "; a DIV b and CAST(a AS BIGINT) are whole"
            message = f"a length of time is a whole number: this is {type_name(bound.type)}"
            self.context.fail("P0371", message, written.span, hint)
        fixed = isinstance(bound, Literal)
        if isinstance(bound, Literal) and (bound.value is None or bound.value < 1):
            refuse_short(written.span, domain, self.context)
        value = bound if bound.type == BIGINT else fold(build_cast(bound, BIGINT))
        if (unit := written.unit) is None:
            return value, fixed
        size = self.context.guard(written.span, lambda: domain.ticks(Interval(exact("1"), unit)))
        return (value if size == 1 else build_call("MUL", [value, Literal(BIGINT, size)])), fixed

    def warn_of_bare(self, written: Duration | Length, word: str) -> None:
        """Warn of a number without a unit that counts microseconds: timestamps have no ticks of their own."""
        calendar = (self.domain or CALENDAR).calendar
        if isinstance(written, Length) and written.unit is None and calendar:
            value = written.value.unnest()
            if isinstance(value, exp.Literal) and not value.is_string:
                text = str(value.this)
                hint = f"name the unit: {word} {text} SECONDS, or {word} {text} MICROSECONDS"
                self.context.warn(
                    f"{word} {text} lasts {text} microseconds, the ticks of a TIMESTAMP", written.span, hint
                )

    def _stamped(self) -> tuple[Algebra, Expression]:
        """Return the window, and the timestamp of its elements in ticks, a column more where they carry none."""
        assert self.stream is not None
        stamp = self.stream.timestamp_column
        if stamp is not None:
            field = self.stream.schema[stamp]
            return self.node, ticks_of(Column(field.type, stamp, field.name))
        if not isinstance(self.node, StreamToRelation):
            hint = "VALID FROM takes two of its columns"
            self.context.fail("P0370", f"the elements of {self.name} carry no timestamp", self.span, hint)
        return ArrivalTime(self.node), arrival_column(len(self.node.schema))

    # --- VALID FROM

    def _from_columns(self, valid: ValidClause) -> Timed:
        assert valid.begin is not None and valid.end is not None
        scope, context = Scope(self.entries), self.context
        begin, end = context.each(lambda name: scope.resolve(name, None, context), [valid.begin, valid.end])
        for entry, name in ((begin, valid.begin), (end, valid.end)):
            if not _is_instant(entry.type):
                message = (
                    f"VALID FROM takes two columns of one type, TIMESTAMP, DATE or an integer: {name.text} is"
                    f" {type_name(entry.type)}"
                )
                context.fail("P0371", message, name.span, _CONVERTED)
        if begin.type != end.type and not (is_integer(begin.type) and is_integer(end.type)):
            message = (
                "VALID FROM takes two columns of one type, TIMESTAMP, DATE or an integer: these are"
                f" {type_name(begin.type)} and {type_name(end.type)}"
            )
            context.fail("P0371", message, valid.begin.span.to(valid.end.span), _CONVERTED)
        if begin.index == end.index:
            hint = "a period is from its begin up to its end, which are two columns"
            context.fail("P0371", f"VALID FROM takes two columns: {begin.name} is one", valid.end.span, hint)
        return self._columns(begin, end, valid.through is not None)

    def _columns(self, begin: Entry, end: Entry, through: bool = False) -> Timed:
        last = build_call("LEAST", [build_call("COALESCE", [ticks_of(end.column()), never()]), never()])
        if through:
            step = _DAY if end.type == DATE else 1
            closed = build_call("LT", [last, Literal(BIGINT, END - step)])
            last = build_call("IF", [closed, build_call("ADD", [last, Literal(BIGINT, step)]), never()])
        type_ = begin.type if begin.type == end.type else BIGINT
        domain = self.domain if self.domain is not None and self.domain.calendar != is_integer(type_) else None
        stamp = None if self.stream is None else self.stream.timestamp_column
        begins = Begins.TIMESTAMP if begin.index == stamp else Begins.ANY
        return self._with(self.node, ticks_of(begin.column()), last, PeriodBound(type_, domain), begins)

    def _pair(self) -> Timed | None:
        """Return the period of columns called `x_from` and `x_to`: of a query that selects VALID(..) AS x."""
        if self.declared is not None:
            return None
        named = {e.name.lower(): e for e in self.entries if e.named}
        twice = Counter(e.name.lower() for e in self.entries if e.named)
        named = {name: entry for name, entry in named.items() if twice[name] == 1}
        pairs = [
            (first, named[name.removesuffix("_from") + "_to"])
            for name, first in named.items()
            if name.endswith("_from") and name.removesuffix("_from") + "_to" in named
        ]
        pairs = [(a, b) for a, b in pairs if a.type == b.type and _is_instant(a.type)]
        chosen = [pair for pair in pairs if pair[0].name.lower() == "valid_from"] or pairs
        return self._columns(*chosen[0]) if len(chosen) == 1 else None

    # --- granules

    def _granule(self) -> Timed | None:
        window = self.node
        if self.stream is None or not isinstance(window, Window | RowWindow) or window.slide is None:
            return None
        node, stamp = self._stamped()
        domain = self.domain or CALENDAR
        slide, align = window.slide, window.align
        behind = build_call("PMOD", [build_call("SUB", [Literal(BIGINT, align), stamp]), Literal(BIGINT, slide)])
        end = build_call("ADD", [stamp, behind])
        begin = build_call("SUB", [end, Literal(BIGINT, slide)])
        type_ = TIMESTAMP if domain.calendar else BIGINT
        return self._with(node, begin, end, PeriodBound(type_, domain), Begins.GRANULE)

    def _with(
        self,
        node: Algebra,
        begin: Expression,
        end: Expression,
        bound: PeriodBound,
        begins: Begins,
        length: Expression | None = None,
    ) -> Timed:
        columns = tuple(Column(f.type, i, f.name) for i, f in enumerate(self.node.schema))
        fields = (*self.node.schema.fields, Field("begin", BIGINT), Field("end", BIGINT))
        known = length.value if isinstance(length, Literal) else None
        return Timed(Project(node, (*columns, begin, end), fields), bound, begins, self._closing(begins, known))

    def _closing(self, begins: Begins, longest: int | None) -> Closing | None:
        """Return when stretches of such periods are closed; None where they never are."""
        if begins is Begins.ANY or self.stream is None:
            return None
        slide, align = (self.node.slide, self.node.align) if isinstance(self.node, StreamToRelation) else (None, 0)
        if isinstance(self.node, RowWindow) and (self.node.step or 1) > 1:
            return None
        # A granule has ended when its element enters.
        return Closing(slide, align, 1, 0) if begins is Begins.GRANULE else Closing(slide, align, 0, longest)

    # --- the list

    def without_valid_time(self, span: TextSpan) -> NoReturn:
        """Fail with P0370."""
        columns = [e.name for e in self.entries if e.named]
        self.context.fail("P0370", f"{self.name} has no valid time", span, without_valid_time(self.name, columns))

    def coalesced(
        self, timed: Timed, items: tuple[Item, ...], qualifier: str | None, only_closed: bool, gaps: bool = False
    ) -> tuple[Algebra, tuple[Entry, ...]]:
        """Return the relation coalesced on `items`, and its columns. only_closed: without the stretches that may still
        grow; gaps: they are all read, for the gaps between.

        """
        if self.window is not None and (self.window.internal is not None or self.window.frequency is not None):
            word = "an INTERNAL window" if self.window.internal is not None else "FREQUENCY"
            hint = "granules follow SLIDE, and results must end"
            self.context.fail("P0374", f"coalescing under {word} has no meaning", self.window.span, hint)
        named = [column for item in items for column in self._item(item)]
        width = len(self.node.schema)
        bounds = (Column(BIGINT, width, "begin"), Column(BIGINT, width + 1, "end"))
        fields = [Field(name, value.type) for name, value in named]
        below = Project(
            timed.node,
            (*(value for _, value in named), *bounds),
            (*fields, Field("begin", BIGINT), Field("end", BIGINT)),
        )
        if only_closed and timed.closing is None:
            hint = "TIMESTAMP BY its begin, or VALID FOR"
            message = f"periods of {self.name} may begin at any time, so none is ever closed"
            self.context.fail("P0373", message, self.span, hint)
        node = Coalesce(below, timed.begins, timed.closing, only_closed and not gaps)
        plain = tuple(Entry(i, f.name, f.type, qualifier) for i, f in enumerate(fields))
        there = {name.lower() for name, _ in named}
        withheld = tuple(
            replace(e, withheld=True, qualifier=qualifier)
            for e in self.entries
            if e.named and e.name.lower() not in there
        )
        bounds_of = tuple(replace(e, closes=True) for e in bound_entries(len(fields), timed.bound, qualifier))
        return node, (*plain, *bounds_of, *withheld)

    def _item(self, item: Item) -> list[tuple[str, Expression]]:
        context = self.context
        if isinstance(item.value, Star):
            stamp = None if self.stream is None else self.stream.timestamp_column
            scope = Scope(tuple(e for e in self.entries if e.index != stamp))
            columns = star_columns(replace(item.value, qualifier=None), ExpressionBinder(scope, context, _LIST))
            return [(one.name, one.expression) for one in columns]
        bound = ExpressionBinder(Scope(self.entries), context, _LIST).bind(item.value)
        if pa.types.is_null(bound.type):
            context.fail("P0203", "NULL is no column", span_of(item.value))
        if item.alias is not None:
            return [(item.alias.text, bound)]
        if isinstance(bound, Column):
            return [(bound.name, bound)]
        hint = "as in (sensor, humidity > 75 AS high)"
        return context.fail("P0372", "an expression in a list of columns needs a name", span_of(item.value), hint)


def check_valid(source: Source, valid: ValidClause, span: TextSpan, context: Context) -> None:
    """Report what is wrong with the VALID clause of a declaration."""
    columns = tuple(range(len(source.columns)))
    stream = StreamScan(source, columns) if source.is_stream else None
    node = unbounded(stream) if stream is not None else RelationScan(source, columns)
    entries = tuple(Entry(i, f.name, f.type, source.name) for i, f in enumerate(source.columns))
    PeriodSource(node, stream, entries, None, source.name, span, context, "").timed(valid)


@functools.lru_cache(maxsize=256)
def parsed_valid(text: str) -> ValidClause:
    """Return the VALID clause of a declaration from its text, which has been checked."""
    query = parse_query_tree(f"SELECT a FROM s {text}")
    assert isinstance(query, SelectQuery) and isinstance(query.source, NamedSource) and query.source.valid is not None
    return query.source.valid


def bound_entries(position: int, bound: PeriodBound, qualifier: str | None) -> tuple[Entry, Entry]:
    """Return the two bounds of a period, from `position` on."""
    name = f"VALID({qualifier})"
    begin, end = (Entry(position + i, name, BIGINT, qualifier, bound=bound) for i in range(2))
    return begin, end


def _is_instant(type_: pa.DataType) -> bool:
    return is_integer(type_) or type_ == DATE or pa.types.is_timestamp(type_)
