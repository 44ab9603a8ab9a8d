"""Windows as columns: each element of a stream once for each window [start, end) that holds it (docs/recipes.md).

Time is whole ticks, so [start, end) is (start - 1, end - 1]: the window in time whose boundaries are one tick before
the ends. Hence nothing here is new to the executor: the elements are those of RSTREAM over that window, and their
bounds follow from the instant at which it emits them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from penstock.algebra.nodes.base import (
    Algebra,
    ArrivalTime,
    ColumnPruning,
    Delay,
    Emitted,
    Pruned,
    Unary,
    arrival_column,
)
from penstock.algebra.nodes.base.algebra import Evaluation
from penstock.algebra.nodes.base.checks import need_stream, refused
from penstock.algebra.nodes.base.fields import Ticks, TicksOrNone
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.windows import Window, WindowKind, unbounded
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.timestamps import Rising, Risings
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import BIGINT
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.types import Field, Schema

#: The columns behind those of the stream.
WINDOW_COLUMNS = ("window_start", "window_end", "window_time")
_START, _END, _TIME = range(len(WINDOW_COLUMNS))


@dataclass(frozen=True, eq=False)
class Restamp(Emitted, Unary):
    """The elements of a stream, once for each window that holds them, with its start, its end and its last instant
    `window_time` = end - 1, at which they are emitted.

    Args:
        length: the ticks of a window; cumulative: those of the longest.
        slide: the ticks from one window to the next; cumulative: by which a window grows. `length` is a multiple.
        offset: the tick from which windows are counted, below `slide`; cumulative: below `length`.
        cumulative: windows of `slide`, 2 * `slide`, .. up to `size` have one start.
    """

    in_language: ClassVar[str] = "TUMBLE, HOP or CUMULATE"

    length: Ticks
    slide: Ticks
    offset: TicksOrNone = 0
    cumulative: bool = False

    def __post_init__(self) -> None:
        need_stream(self.input)
        if self.length % self.slide:
            raise refused("the length of windows is a multiple of their slide", "P0328", at=("length",))
        if self.offset >= (self.length if self.cumulative else self.slide):
            raise refused("the offset of windows is below the distance of their starts", "P0328", at=("offset",))

    @property
    def schema(self) -> Schema:
        type_ = self._instants
        return Schema((*self.input.schema.fields, *(Field(name, type_) for name in WINDOW_COLUMNS)))

    @property
    def _instants(self) -> pa.DataType:
        calendar = self.domain is not None and self.domain.calendar
        return pa.timestamp("us", "UTC") if calendar else BIGINT

    @property
    def needs(self) -> Needs:
        return self.emitted.needs

    @property
    def rising(self) -> Risings:
        width = len(self.input.schema)
        offsets = {_END: 1, _TIME: 0}
        # A start belongs to one window alone, but for those that grow.
        if not self.cumulative:
            offsets[_START] = 1 - self.length
        return {width + at: Rising(self.schema[width + at].type, offset) for at, offset in offsets.items()}

    def evaluations(self) -> Iterable[Evaluation]:
        return self.window.evaluations()

    @property
    def delays(self) -> tuple[Delay, ...]:
        return self.window.delays

    @property
    def window(self) -> Window:
        """Return the window in time at whose boundaries elements are emitted."""
        return Window(self.input, WindowKind.RANGE, self.length, self.slide, (self.offset - 1) % self.slide)

    @property
    def emitted(self) -> Algebra:
        """Return the same stream, of operators that the executor has."""
        width = len(self.input.schema)
        columns = tuple(Column(f.type, i, f.name) for i, f in enumerate(self.input.schema))
        if not self.cumulative:
            elements = RelationToStream(self.window, StreamKind.RSTREAM)
            stamped: Algebra = ArrivalTime(unbounded(elements))
        else:
            elements = RelationToStream(ArrivalTime(self.window), StreamKind.RSTREAM)
            whole = ArrivalTime(unbounded(elements))
            # An element of the window before has the same boundary in its reach, where the start lies between.
            start = self.bounds(arrival_column(width + 1))[_START]
            stamped = Select(whole, build_call("GE", [arrival_column(width), start]))
        came = arrival_column(len(stamped.schema) - 1)
        bounds = tuple(self.shown(bound) for bound in self.bounds(came))
        return RelationToStream(Project(stamped, (*columns, *bounds), self.schema.fields), StreamKind.ISTREAM)

    def bounds(self, emitted: Expression) -> tuple[Expression, ...]:
        """Return start, end and last instant, in ticks, of the window whose elements are emitted at an instant."""
        end = build_call("ADD", [emitted, Literal(BIGINT, 1)])
        if not self.cumulative:
            return build_call("ADD", [emitted, Literal(BIGINT, 1 - self.length)]), end, emitted
        since = build_call("SUB", [emitted, Literal(BIGINT, self.offset)])
        return build_call("SUB", [emitted, build_call("PMOD", [since, Literal(BIGINT, self.length)])]), end, emitted

    def shown(self, bound: Expression) -> Expression:
        """Return ticks as they stand in a column of the window."""
        return bound if self._instants == BIGINT else build_call("TIMESTAMP_MICROS", [bound])

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        width = len(self.input.schema)
        below = pruning.narrowed(self.input, frozenset(i for i in needed if i < width))
        bounds = {width + i: len(below.node.schema) + i for i in range(len(WINDOW_COLUMNS))}
        return Pruned(replace(self, input=below.node), {**below.positions, **bounds})

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        distinct = (*below.distinct, *(below.rate for _ in WINDOW_COLUMNS))
        return replace(below, rate=below.rate * self.length / self.slide, distinct=distinct)

    def describe(self) -> Mapping[str, str]:
        domain = self.domain
        show = domain.show_length if domain else str
        grows = "up to " if self.cumulative else ""
        offset = f", offset {show(self.offset)}" if self.offset else ""
        return {"windows": f"{grows}{show(self.length)} every {show(self.slide)}{offset}"}
