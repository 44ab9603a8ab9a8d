"""FREQUENCY, and queries in the sequence model (docs/language/frequency.md).

Their meaning is in `algebra/nodes/frequency.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.algebra import Algebra, Frequency, FrequencyWindow, Project
from penstock.algebra.analysis.period_operators import period_operator
from penstock.algebra.nodes.frequency import answers, holds_internal, in_sequence, not_on_the_line, on_the_line
from penstock.algebra.nodes.promised import awaits_closing, without_promises
from penstock.algebra.nodes.sequence_model import sequenced
from penstock.expressions.nodes import Column, Expression
from penstock.language.binder.context import Context
from penstock.language.binder.from_.durations import count, ticks
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Scope
from penstock.language.dialect import span_of
from penstock.language.queries import Count, Duration, Extent, FrequencyClause, Length, WindowClause
from penstock.language.text import TextSpan
from penstock.types import CALENDAR, TimeDomain

#: A number of tuples, a number of ticks, or neither.
Measure = tuple[int | None, int | None]

#: The contents of a window that jumps.
_JUMPING = frozenset({Extent.NOW, Extent.RANGE, Extent.UNBOUNDED, Extent.ROWS})


def answer_stream(node: Algebra, span: TextSpan, context: Context) -> Algebra:
    """Return the answer of a query without an operator: in the sequence model always a stream, else `node` itself."""
    if not in_sequence(node):
        return node
    stream = in_order(answers(on_the_line(checked(node, span, context))), span, context)
    if len(stream.schema) == len(node.schema):
        return stream
    # Columns of substreams that are no items.
    return Project(stream, tuple(Column(f.type, i, f.name) for i, f in enumerate(node.schema)), node.schema.fields)


def checked(node: Algebra, span: TextSpan, context: Context) -> Algebra:
    """Return `node` if the sequence model allows it. Raises BindingFailed after P0310 or P0374."""
    if holds_internal(node):
        message = "INTERNAL in a query with FREQUENCY, which is evaluated repeatedly: its results would have to expire"
        hint = "write the part with FREQUENCY as a view, and read the view, which is a stream"
        context.fail("P0310", message, span, hint)
    by_periods = period_operator(node)
    if by_periods is not None:
        hint = "write the part with FREQUENCY as a view, and read the view, which is a stream"
        context.fail("P0374", f"{by_periods} under FREQUENCY has no meaning", span, hint)
    window = not_on_the_line(node)
    if window is not None:
        message = f"a window {window.describe()['window']} in a query with FREQUENCY, which has no place for it"
        hint = "write the part with FREQUENCY as a view, and read the view, which is a stream"
        context.fail("P0310", message, span, hint)
    if awaits_closing(node):
        hint = "write the part with FREQUENCY as a view, and read the view, which is a stream"
        context.fail("P0373", "CLOSED in a query with FREQUENCY", span, hint)
    return without_promises(node)


def in_order(answer: Algebra, span: TextSpan, context: Context) -> Algebra:
    """Return the query `answer` in the sequence model: streams interleave in the order in which the script declares
    them. Raises BindingFailed after P0102 where no stream is read.
    """
    declared = [source.name for source in context.catalog.sources.values()]

    def rank(stream: Algebra) -> int:
        return min((declared.index(n) for n in stream.source_names if n in declared), default=len(declared))

    sequence = sequenced(answer, rank)
    if not sequence.streams:
        message = "a query with FREQUENCY needs a stream: its instants are elements that arrive"
        context.fail("P0102", message, span)
    return sequence


def picked(frequency: FrequencyClause, stream: Algebra, partition: tuple[int, ...], context: Context) -> Algebra:
    """Return the frequency operator over `stream`."""
    rows, slot = measure(frequency.every, stream.domain or CALENDAR, context)
    return Frequency(stream, rows, slot, partition)


def measure(length: Duration | Count | None, domain: TimeDomain, context: Context) -> Measure:
    if length is None:
        return None, None
    if isinstance(length, Count):
        return count(length, context, "1 TUPLE"), None
    return None, ticks(length, domain, context)


def columns_of_partition(frequency: FrequencyClause, scope: Scope, context: Context) -> tuple[int, ...]:
    """Return the positions of the PARTITIONED BY columns of a stream in FROM."""
    binder = ExpressionBinder(scope, context, "PARTITIONED BY")
    columns: dict[int, None] = {}
    for bound, node in zip(context.each(binder.bind, frequency.partition), frequency.partition, strict=True):
        if not isinstance(bound, Column):
            context.fail("P0102", "PARTITIONED BY takes columns of the stream", span_of(node))
        columns[bound.index] = None
    return tuple(columns)


def items_of_partition(
    frequency: FrequencyClause, scope: Scope, outputs: Sequence[tuple[str, Expression]], context: Context
) -> tuple[int, ...]:
    """Return the positions of the PARTITIONED BY columns among the items of a SELECT."""
    binder = ExpressionBinder(scope, context, "PARTITIONED BY", outputs=list(outputs))
    positions: dict[int, None] = {}
    for bound, node in zip(context.each(binder.bind, frequency.partition), frequency.partition, strict=True):
        position = next((i for i, (_, item) in enumerate(outputs) if item == bound), None)
        if position is None:
            message = "PARTITIONED BY takes items of the select list here: they distinguish the answers"
            context.fail("P0102", message, span_of(node), "add the column to the select list")
        positions[position] = None
    return tuple(positions)


@dataclass(frozen=True)
class Jumping:
    """`[RANGE W, FREQUENCY F]` over a stream of `domain`. partition: the columns of PARTITION BY in the window."""

    spec: WindowClause
    frequency: FrequencyClause
    partition: tuple[int, ...]
    domain: TimeDomain
    context: Context

    def over(self, stream: Algebra, scope: Scope) -> FrequencyWindow:
        """Return the window. Raises BindingFailed after P0102 where the clauses have no meaning together."""
        self._refuse_other_clauses()
        by = columns_of_partition(self.frequency, scope, self.context)
        every, slide = measure(self.frequency.every, self.domain, self.context)
        rows, length = self._content()
        partition = self.partition
        if rows is not None and by and partition and set(by) != set(partition):
            message = "PARTITION BY and PARTITIONED BY name different columns: elements are counted by one of them"
            self.context.fail("P0102", message, self.frequency.span, "leave one of them out")
        if rows is None:
            partition = ()  # a window in time is the same of every partition and of the whole
        elif not partition:
            partition = by
        # A boundary in time is the same for all substreams.
        return FrequencyWindow(stream, rows, length, partition, every, by if every is not None else (), slide)

    def _content(self) -> Measure:
        spec, context = self.spec, self.context
        assert not isinstance(spec.length, Length), "a length of SESSION"
        rows, length = measure(spec.length, self.domain, context)
        if spec.extent is Extent.NOW:
            return None, 1
        if spec.span_limit is not None:
            length = ticks(spec.span_limit, self.domain, context)
        return rows, length

    def _refuse_other_clauses(self) -> None:
        spec, context = self.spec, self.context
        if spec.extent is not None and spec.extent not in _JUMPING:
            message = f"a window {spec.extent.value} does not jump with FREQUENCY"
            context.fail("P0102", message, spec.span, "write RANGE, ROWS or NOW beside FREQUENCY")
        if spec.slide is not None:
            message = "SLIDE and FREQUENCY both specify how often the window moves"
            context.fail("P0102", message, spec.slide.span, "leave out one of them: FREQUENCY in time is SLIDE")
        if spec.align is not None:
            context.fail("P0102", "ALIGN TO needs a SLIDE", spec.align.span)
        if spec.internal is not None:
            message = "a window that jumps cannot be INTERNAL"
            context.fail("P0102", message, spec.internal.span, "leave out INTERNAL: FREQUENCY bounds the state")
