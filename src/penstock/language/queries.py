"""What a query says: frozen trees, positions included, before any name is looked up (LANGUAGE 4).

Scalar expressions inside are sqlglot's trees, which the grammar builds and nobody changes. Spans do not count for
equality, so a query equals the one its printed text parses to.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, TypeAlias

from sqlglot import exp

from penstock.language.text import Span
from penstock.types import Interval

NOWHERE = Span(0, 0)


@dataclass(frozen=True)
class Name:
    """An identifier. Unquoted ones match without regard to case, quoted ones exactly."""

    text: str
    quoted: bool = False
    span: Span = field(default=NOWHERE, compare=False)

    def matches(self, declared: str) -> bool:
        return self.text == declared if self.quoted else self.text.lower() == declared.lower()

    @property
    def key(self) -> str:
        return self.text.lower()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and self.text == other.text and self.quoted == other.quoted

    def __hash__(self) -> int:
        return hash((self.text, self.quoted))


@dataclass(frozen=True)
class Duration:
    """An interval as written, e.g. `10 SECOND`."""

    interval: Interval
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Count:
    """A number of rows or tuples."""

    value: int
    span: Span = field(default=NOWHERE, compare=False)


# --- windows (LANGUAGE 4.1, 6)


class Extent(enum.Enum):
    """What kind of content a window has."""

    NOW = "NOW"
    RANGE = "RANGE"
    UNBOUNDED = "UNBOUNDED"
    ROWS = "ROWS"


@dataclass(frozen=True)
class Mark:
    """A keyword whose only content is that it stands there."""

    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Frequency:
    """FREQUENCY n TUPLES | FREQUENCY t, with PARTITIONED BY (csql)."""

    every: Duration | Count
    partition: tuple[exp.Expr, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Align:
    """ALIGN TO: a tick, a length counted from tick 0, or a timestamp in ISO form."""

    to: int | Interval | str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class WindowSpec:
    """A window as written. extent None: `[FREQUENCY ...]` alone. length: T of RANGE T, n of ROWS n or RANGE n TUPLES;
    span_limit: the RANGE behind PARTITION BY ... ROWS n; lost: what stands in the brackets cannot be read."""

    extent: Extent | None
    length: Duration | Count | None = None
    partition: tuple[exp.Expr, ...] = ()
    span_limit: Duration | None = None
    slide: Duration | Count | None = None
    align: Align | None = None
    where: exp.Expr | None = None
    internal: Mark | None = None
    frequency: Frequency | None = None
    lost: bool = field(default=False, compare=False)
    span: Span = field(default=NOWHERE, compare=False)


# --- queries (LANGUAGE 4)


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
    window: WindowSpec | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Star:
    """`*` or `alias.*`."""

    qualifier: Name | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Item:
    """One entry of a select list."""

    value: exp.Expr | Star
    alias: Name | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Sample:
    """SAMPLE(percent)."""

    percent: Fraction
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class NamedSource:
    """A stream, relation or view in FROM."""

    name: Name
    window: WindowSpec | None = None
    sample: Sample | None = None
    alias: Name | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class DerivedSource:
    """A query in FROM. called: its own name before the alias, as CSQL writes `(query) AS PulseRate PR [window]`."""

    query: QueryTree
    window: WindowSpec | None = None
    alias: Name | None = None
    columns: tuple[Name, ...] = ()
    called: Name | None = None
    lateral: Mark | None = None
    span: Span = field(default=NOWHERE, compare=False)


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
    kind_span: Span = field(default=NOWHERE, compare=False)
    span: Span = field(default=NOWHERE, compare=False)


FromSource: TypeAlias = NamedSource | DerivedSource | JoinedSource


@dataclass(frozen=True)
class SortKey:
    value: exp.Expr
    descending: bool = False
    nulls_first: bool | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Select:
    """One SELECT. wrapped: an R2S around the select list."""

    items: tuple[Item, ...]
    source: FromSource | None = None
    distinct: bool = False
    wrapped: ToStream | None = None
    frequency: Frequency | None = None
    where: exp.Expr | None = None
    group: tuple[exp.Expr, ...] = ()
    having: exp.Expr | None = None
    span: Span = field(default=NOWHERE, compare=False)


class SetKind(enum.Enum):
    UNION = "UNION"
    EXCEPT = "EXCEPT"
    INTERSECT = "INTERSECT"


@dataclass(frozen=True)
class SetQuery:
    left: QueryTree
    right: QueryTree
    kind: SetKind
    all: bool
    operator_span: Span = field(default=NOWHERE, compare=False)
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class StreamQuery:
    """An R2S around a whole query."""

    operator: ToStream
    query: QueryTree
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SortedQuery:
    """ORDER BY ... LIMIT ... OFFSET."""

    query: QueryTree
    order: tuple[SortKey, ...] = ()
    limit: exp.Expr | None = None
    offset: exp.Expr | None = None
    order_span: Span = field(default=NOWHERE, compare=False)
    limit_span: Span = field(default=NOWHERE, compare=False)
    offset_span: Span = field(default=NOWHERE, compare=False)
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class LocalView:
    name: Name
    columns: tuple[Name, ...]
    query: QueryTree
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class WithQuery:
    """WITH name AS (query), ... query."""

    views: tuple[LocalView, ...]
    query: QueryTree
    span: Span = field(default=NOWHERE, compare=False)


QueryTree: TypeAlias = Select | SetQuery | StreamQuery | SortedQuery | WithQuery


class EmbeddedQuery(exp.Select):
    """A query inside a scalar expression, wrapped so that sqlglot's expression grammar can carry it."""

    arg_types: ClassVar[dict[str, bool]] = {**exp.Select.arg_types, "cql": False}

    @property
    def tree(self) -> QueryTree:
        tree: QueryTree = self.args["cql"]
        return tree
