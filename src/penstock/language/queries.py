"""Syntax trees of queries: frozen, with positions, before any name is looked up (docs/language/queries.md).

Scalar expressions inside are sqlglot's trees, built by the grammar and never changed. Spans do not count for equality,
so a query equals the result of parsing its printed text.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, TypeAlias

from sqlglot import exp

from penstock.language.text import TextSpan
from penstock.types import Interval, Unit

NOWHERE = TextSpan(0, 0)
#: The functions that may stand in FROM.
SERIES = ("range", "generate_series")
#: The schema of the control relations of a server.
CONTROL_SCHEMA = "penstock"


@dataclass(frozen=True)
class Name:
    """An identifier. Unquoted ones match without regard to case, quoted ones exactly.

    schema: of a control relation, `penstock`; empty for what is declared, which has a name of one part.
    """

    text: str
    quoted: bool = False
    span: TextSpan = field(default=NOWHERE, compare=False)
    schema: str = ""

    def matches(self, declared: str) -> bool:
        whole = self.whole
        return whole == declared if self.quoted else whole.lower() == declared.lower()

    @property
    def whole(self) -> str:
        """Return the name with its schema."""
        return f"{self.schema}.{self.text}" if self.schema else self.text

    @property
    def key(self) -> str:
        return self.whole.lower()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and (self.whole, self.quoted) == (other.whole, other.quoted)

    def __hash__(self) -> int:
        return hash((self.whole, self.quoted))


@dataclass(frozen=True)
class Duration:
    """An interval as written, e.g. `10 SECOND`."""

    interval: Interval
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Count:
    """A number of rows or tuples."""

    value: int
    span: TextSpan = field(default=NOWHERE, compare=False)


# --- valid time (docs/temporal.md)


@dataclass(frozen=True)
class Length:
    """A length of time that is computed, or in ticks: an expression, and its unit, None for ticks."""

    value: exp.Expr
    unit: Unit | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ValidClause:
    """VALID: the period of a row. One of three forms.

    Args:
        length: of FOR.
        begin, end: the columns of FROM.
        through: whether the end is the last instant of the period, and not the first one behind it.
        until_next: of UNTIL NEXT, whose period ends where the next one of the columns `by` begins.
        by, at_most: its columns, and the longest period.
    """

    length: Duration | Length | None = None
    begin: Name | None = None
    end: Name | None = None
    through: Mark | None = None
    until_next: Mark | None = None
    by: tuple[Name, ...] = ()
    at_most: Duration | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


# --- windows (docs/language/windows.md)


class Extent(enum.Enum):
    """The kind of content of a window."""

    NOW = "NOW"
    RANGE = "RANGE"
    UNBOUNDED = "UNBOUNDED"
    ROWS = "ROWS"
    VALID = "VALID"
    SESSION = "SESSION"


@dataclass(frozen=True)
class Mark:
    """A keyword without arguments, which matters only by being present."""

    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class FrequencyClause:
    """FREQUENCY n TUPLES | FREQUENCY t, with PARTITIONED BY (csql)."""

    every: Duration | Count
    partition: tuple[exp.Expr, ...] = ()
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Align:
    """ALIGN TO: a tick, a length counted from tick 0, or a timestamp in ISO form."""

    to: int | Interval | str
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class WindowClause:
    """A window as written.

    Args:
        extent: None for `[FREQUENCY ...]` alone.
        length: T of RANGE T, n of ROWS n or RANGE n TUPLES, the gap of SESSION.
        span_limit: the RANGE after PARTITION BY ... ROWS n.
        at_most: the longest session.
        open: whether the sessions are those that have not ended.
        time: the column that Spark's session_window or Flink's SESSION names, which is the timestamp of the stream.
        lost: whether the content of the brackets could not be parsed.
    """

    extent: Extent | None
    length: Duration | Count | Length | None = None
    partition: tuple[exp.Expr, ...] = ()
    span_limit: Duration | None = None
    slide: Duration | Count | None = None
    align: Align | None = None
    where: exp.Expr | None = None
    internal: Mark | None = None
    frequency: FrequencyClause | None = None
    at_most: Duration | None = None
    open: Mark | None = None
    time: Name | None = field(default=None, compare=False)
    lost: bool = field(default=False, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


# --- queries (docs/language/queries.md)


class StreamOperator(enum.Enum):
    ISTREAM = "ISTREAM"
    DSTREAM = "DSTREAM"
    RSTREAM = "RSTREAM"
    WSTREAM = "WSTREAM"


@dataclass(frozen=True)
class ToStream:
    """A relation-to-stream operator without its operand. window: of WSTREAM (...)[window]."""

    operator: StreamOperator
    restore: Mark | None = None
    window: WindowClause | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Renamed:
    """`column AS name` behind RENAME."""

    column: Name
    name: Name


@dataclass(frozen=True)
class Star:
    """`*` or `alias.*`, with EXCEPT, REPLACE and RENAME; or COLUMNS('pattern').

    Args:
        excluded: the columns that are left out.
        replaced: expressions in the place of columns, under their names.
        pattern: the regular expression of COLUMNS, found in the names of the columns.
    """

    qualifier: Name | None = None
    excluded: tuple[Name, ...] = ()
    replaced: tuple[Item, ...] = ()
    renamed: tuple[Renamed, ...] = ()
    pattern: str | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def is_plain(self) -> bool:
        return not (self.excluded or self.replaced or self.renamed or self.pattern is not None)


@dataclass(frozen=True)
class Item:
    """One entry of a select list."""

    value: exp.Expr | Star
    alias: Name | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def expressions(self) -> tuple[exp.Expr, ...]:
        """Return the expressions that are written in it: of a star those of REPLACE."""
        if isinstance(self.value, Star):
            return tuple(value for item in self.value.replaced for value in item.expressions)
        return (self.value,)


@dataclass(frozen=True)
class SampleClause:
    """SAMPLE(percent [BY c, ...]) or SAMPLE(n ROWS [PER c, ...] [WEIGHT e]), with REPEATABLE(seed)."""

    percent: Fraction | None
    by: tuple[exp.Expr, ...] = ()
    rows: int | None = None
    per: tuple[exp.Expr, ...] = ()
    weight: exp.Expr | None = None
    seed: int | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class NamedSource:
    """A stream, relation or view in FROM. items: the columns on which it is coalesced, None where it is not; period:
    whether `(PERIOD)` follows them, which changes nothing; gaps: GAPS OF, the periods between; least: their shortest.
    """

    name: Name
    window: WindowClause | None = None
    sample: SampleClause | None = None
    alias: Name | None = None
    items: tuple[Item, ...] | None = None
    period: Mark | None = None
    valid: ValidClause | None = None
    gaps: Mark | None = None
    least: Duration | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


class WindowTable(enum.Enum):
    """The function in FROM that adds the columns of windows to the rows of a source."""

    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"


@dataclass(frozen=True)
class WindowTableClause:
    """TUMBLE, HOP or CUMULATE.

    Args:
        time: the column whose instants the windows hold.
        lengths: the length of a window; before it, of HOP the slide and of CUMULATE the step. A Count is ticks.
        offset: the instant from which windows are counted.
        grouped: it stands in GROUP BY, over the one source of FROM.
    """

    kind: WindowTable
    time: Name
    lengths: tuple[Duration | Count, ...]
    offset: Duration | Count | None = None
    grouped: bool = field(default=False, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class DerivedSource:
    """A query in FROM. called: its own name before the alias, as CSQL writes `(query) AS PulseRate PR [window]`;
    windows: what adds the columns of windows to its rows."""

    query: QueryTree
    window: WindowClause | None = None
    alias: Name | None = None
    columns: tuple[Name, ...] = ()
    called: Name | None = None
    lateral: Mark | None = None
    sample: SampleClause | None = None
    windows: WindowTableClause | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


class JoinKind(enum.Enum):
    CROSS = "CROSS"
    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"


@dataclass(frozen=True)
class JoinedSource:
    """Two sources joined; a comma is a CROSS join."""

    left: FromSource
    right: FromSource
    kind: JoinKind
    on: exp.Expr | None = None
    using: tuple[Name, ...] = ()
    natural: Mark | None = None
    kind_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


FromSource: TypeAlias = NamedSource | DerivedSource | JoinedSource


@dataclass(frozen=True)
class OrderItem:
    value: exp.Expr
    descending: bool = False
    nulls_first: bool | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class AllItems:
    """ORDER BY ALL: every item of the select list, from left to right."""

    descending: bool = False
    nulls_first: bool | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class FrequentClause:
    """FREQUENT k [BY agg] [PER ( c, ... )] [ABOVE number] [OR POSSIBLY], behind GROUP BY."""

    k: int
    by: exp.Expr | None = None
    per: tuple[exp.Expr, ...] = ()
    above: Fraction | None = None
    possibly: Mark | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class BudgetClause:
    """BUDGET. kind: PER TUPLE, PER, AUTO or UNLIMITED; units: of the first two; interval: of PER."""

    kind: str
    units: int = 0
    interval: Duration | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class PreferenceClause:
    """WITH PREFERENCE. order: ASC, DESC or WEIGHTED, None where it is not written; per: of FADE FACTOR; window: that of
    every stream of FROM."""

    order: str | None
    expressions: tuple[exp.Expr, ...]
    fade: Fraction | None = None
    per: Duration | None = None
    budget: BudgetClause | None = None
    window: Duration | None = None
    fade_span: TextSpan = field(default=NOWHERE, compare=False)
    budget_span: TextSpan = field(default=NOWHERE, compare=False)
    window_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SelectQuery:
    """One SELECT. source: None without FROM; wrapped: an R2S around the select list; group_all: of GROUP BY ALL;
    sets: of GROUPING SETS, ROLLUP and CUBE, the positions in `group` of each set; empty for one set of all of them."""

    items: tuple[Item, ...]
    source: FromSource | None = None
    distinct: bool = False
    wrapped: ToStream | None = None
    frequency: FrequencyClause | None = None
    where: exp.Expr | None = None
    group: tuple[exp.Expr, ...] = ()
    group_all: Mark | None = None
    sets: tuple[tuple[int, ...], ...] = ()
    frequent: FrequentClause | None = None
    having: exp.Expr | None = None
    preference: PreferenceClause | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ValuesQuery:
    """VALUES (..), (..). row_spans: one for each row."""

    rows: tuple[tuple[exp.Expr, ...], ...]
    row_spans: tuple[TextSpan, ...] = field(default=(), compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


class SetOperator(enum.Enum):
    UNION = "UNION"
    EXCEPT = "EXCEPT"
    INTERSECT = "INTERSECT"


@dataclass(frozen=True)
class SetQuery:
    """Two queries under a set operator. by_name: of BY NAME, by which columns of one name are put together."""

    left: QueryTree
    right: QueryTree
    kind: SetOperator
    all: bool
    by_name: Mark | None = None
    operator_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class StreamQuery:
    """An R2S around a whole query."""

    operator: ToStream
    query: QueryTree
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SortedQuery:
    """ORDER BY ... LIMIT ... OFFSET, or FETCH, whose number is the limit. ties: of FETCH .. WITH TIES."""

    query: QueryTree
    order: tuple[OrderItem, ...] | AllItems = ()
    limit: exp.Expr | None = None
    offset: exp.Expr | None = None
    ties: Mark | None = None
    order_span: TextSpan = field(default=NOWHERE, compare=False)
    limit_span: TextSpan = field(default=NOWHERE, compare=False)
    offset_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class LocalView:
    name: Name
    columns: tuple[Name, ...]
    query: QueryTree
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class WithQuery:
    """WITH name AS (query), ... query."""

    views: tuple[LocalView, ...]
    query: QueryTree
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class PlanQuery:
    """FROM PLAN '...': a logical plan as data, in place of a query. text: its JSON."""

    text: str
    text_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


QueryTree: TypeAlias = SelectQuery | ValuesQuery | SetQuery | StreamQuery | SortedQuery | WithQuery
#: What a declaration is made of.
WholeQuery: TypeAlias = QueryTree | PlanQuery


class EmbeddedQuery(exp.Select):
    """A query inside a scalar expression, wrapped so that sqlglot's expression grammar can contain it."""

    arg_types: ClassVar[dict[str, bool]] = {**exp.Select.arg_types, "cql": False}

    @property
    def tree(self) -> QueryTree:
        tree: QueryTree = self.args["cql"]
        return tree
