"""CSQL: how often a query answers, and the sequence model ([semantics 6], `[csql]`).

`Frequency` is the frequency operator on a stream. A query with a FREQUENCY clause is evaluated in the sequence model:
it has a time line of its own, whose *instants* are numbered 1, 2, 3, ... An instant is one arriving element, or a
boundary of a frequency in time behind all elements up to it; several streams interleave by (timestamp, place, arrival).
`Sequenced` is the whole query: its `body` is a relation-to-stream operator over relations on that line, whose windows
(`FrequencyWindow`) stand on the streams' elements as they arrive there (`Arrivals`). A relation with updates is at an
instant what it is at the instant's timestamp; its updates are no instants. What the body emits at an instant has
the instant's timestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import (
    Algebra,
    ColumnPruning,
    Delay,
    Emitted,
    Evaluation,
    Pruned,
    StreamToRelation,
    TimeModelWindow,
    Unary,
    column_labels,
    common_domain,
    has_lives,
    has_operator,
    is_static,
)
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.base.checks import need_relations, need_stream, refused
from penstock.algebra.nodes.base.fields import Columns, Counted, Ticks
from penstock.algebra.nodes.frequency_window import FrequencyWindow, frequency_text
from penstock.algebra.nodes.internal import Internal, own_operators
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.nonretroactive import NRRJoin, is_nrr
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.results import IndividualResults
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.scans import RelationScan, needs_of_last
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, SemiJoin
from penstock.algebra.nodes.set_operations import UnionAll
from penstock.algebra.properties.need import LastRows, Needs, longer
from penstock.expressions.nodes import Column
from penstock.types import Schema, TimeDomain


@dataclass(frozen=True, eq=False)
class Frequency(Emitted, Unary):
    """The frequency operator: of every partition of a stream the elements number n, 2n, 3n, ... (`rows` = n), or of
    each slot ((j-1)t, jt] of time the last one, stamped jt (`slot` = t). One of the two is None."""

    in_language: ClassVar[str] = "FREQUENCY"

    rows: Counted | None = None
    slot: Ticks | None = None
    partition: Columns = ()

    def __post_init__(self) -> None:
        need_stream(self.input)
        if (self.rows is None) is (self.slot is None):
            raise refused("a frequency is in rows or in time (slot): one of the two is needed", "P0102")

    @property
    def negated_inputs(self) -> tuple[Algebra, ...]:
        # It counts tuples.
        return self.inputs

    @property
    def needs(self) -> Needs:
        if self.slot is not None:
            return longer(self.input.needs, self.slot)
        assert self.rows is not None, "a frequency is in rows or in time"
        return needs_of_last(self.input, LastRows(0, self.partition, self.rows))

    @property
    def arrives_in_order(self) -> bool:
        return True

    def evaluations(self) -> Iterable[Evaluation]:
        return (Evaluation(self.rows, self.slot, 0, self.partition),)

    @property
    def delays(self) -> tuple[Delay, ...]:
        return () if self.slot is None else (Delay(0, self.slot, 0),)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # As a row window, which counts elements too.
        if in_arrival_order(self.input) is None:
            return pruning.whole(self)
        below = pruning.narrowed(self.input, needed.union(self.partition))
        partition = tuple(below.positions[i] for i in self.partition)
        return Pruned(replace(self, input=below.node, partition=partition), below.positions)

    def describe(self) -> Mapping[str, str]:
        return {"frequency": frequency_text(self.rows, self.slot, 0, self.partition, self)}


@dataclass(frozen=True, eq=False)
class Arrivals(Emitted):
    """The elements of stream number `place` of the enclosing `Sequenced`, each at its instant. A window is over all of
    them, or, if other windows read more, over those that its WHERE selects."""

    place: int
    columns: Schema
    time: TimeDomain | None

    @property
    def negated_inputs(self) -> tuple[Algebra, ...]:
        # It counts tuples.
        return self.inputs

    @property
    def schema(self) -> Schema:
        return self.columns

    @property
    def domain(self) -> TimeDomain | None:
        return self.time

    def describe(self) -> Mapping[str, str]:
        return {"stream": str(self.place + 1)}


@dataclass(frozen=True, eq=False)
class AtInstants(Emitted, Unary):
    """All of R at every instant of the sequence at which one of its windows is evaluated, or at which R changes; where
    every window jumps, at their evaluations alone.

    Args:
        groups: columns of R that hold the values of the substreams (`FrequencyWindow.by`) of its one window. Where
            there are any, R is emitted at evaluations alone, and of it the rows of the evaluated substream (`[csql 9]`,
            algorithm 3).
    """

    groups: Columns = ()

    def __post_init__(self) -> None:
        need_relations(self.inputs, "P0307")

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        return {"of the evaluated": ", ".join(labels[i] for i in self.groups)} if self.groups else {}

    @property
    def emits_changes(self) -> bool:
        """Return whether R is emitted where it changes between evaluations: a window that slides is evaluated at all
        times."""
        return not self.groups and not all(window.jumps for window in own_frequency_windows(self))


@dataclass(frozen=True, eq=False)
class Sequenced(Emitted):
    """A query in the sequence model: the output of `body` on the line of instants of `streams`, with the timestamps of
    the instants. Elements are in the order of the instants, those of one instant in that of their values."""

    in_language: ClassVar[str] = "FREQUENCY"

    body: Algebra
    streams: tuple[Algebra, ...]

    @property
    def schema(self) -> Schema:
        return self.body.schema

    @property
    def arrives_in_order(self) -> bool:
        return True

    @property
    def domain(self) -> TimeDomain | None:
        return common_domain(self.streams)

    @property
    def windows(self) -> tuple[FrequencyWindow, ...]:
        """Return the windows of the body."""
        return tuple(dict.fromkeys(w for w in own_frequency_windows(self.body)))

    @property
    def relations(self) -> tuple[RelationScan, ...]:
        """Return the relations with updates that the body reads."""
        return tuple(dict.fromkeys(own_updated_relations(self.body)))

    @property
    def periods(self) -> tuple[tuple[int, int], ...]:
        """Return the (slide, align) of its frequencies in time, whose boundaries are instants."""
        periods = {(w.slide, w.align) for w in self.windows if w.slide is not None}
        return tuple(sorted(periods))

    @property
    def ending_inputs(self) -> tuple[Algebra, ...]:
        return self.streams

    @property
    def delays(self) -> tuple[Delay, ...]:
        # Without elements the only instants are boundaries of frequencies in time.
        return tuple(Delay(w.length or 0, w.slide, w.align) for w in self.windows if w.slide is not None)

    @property
    def in_time(self) -> bool:
        """Return whether all its windows are evaluated at the boundaries of one frequency in time, and nowhere else."""
        return len(self.periods) == 1 and all(w.slide is not None for w in self.windows)

    @property
    def reports_all(self) -> bool:
        """Return whether the body also emits results at instants at which nothing changes."""
        return isinstance(self.body, AtInstants)

    def describe(self) -> Mapping[str, str]:
        return {"model": "sequence", "instants": "arrivals" + (", boundaries" if self.periods else "")}


def own_frequency_windows(node: Algebra) -> Iterator[FrequencyWindow]:
    """Return the frequency windows of the query itself: those not inside a stream below."""
    return (operator for operator in own_operators(node) if isinstance(operator, FrequencyWindow))


def own_updated_relations(node: Algebra) -> Iterator[RelationScan]:
    """Return the relations with updates of the query itself: those not inside a stream below."""
    scans = (operator for operator in own_operators(node) if isinstance(operator, RelationScan))
    return (scan for scan in scans if not scan.source.is_static)


def in_sequence(node: Algebra) -> bool:
    """Return whether the relation `node` belongs to a query that is evaluated in the sequence model: one of its windows
    has a frequency, or could have one. Those of streams below count for these alone."""
    return has_operator(node, FrequencyWindow) and next(own_frequency_windows(node), None) is not None


def not_on_the_line(node: Algebra) -> TimeModelWindow | None:
    """Return a window of the relation `node` itself that has no form in the sequence model, None for none."""
    if isinstance(node, TimeModelWindow):
        return node if node.on_the_line() is None else None
    if node.is_stream or isinstance(node, StreamToRelation):
        return None
    return next((window for window in map(not_on_the_line, node.inputs) if window is not None), None)


def holds_internal(node: Algebra) -> bool:
    """Return whether an INTERNAL window stands in the relation `node`: the sequence model has no place for one."""
    return not node.is_stream and (isinstance(node, Internal) or any(map(holds_internal, node.inputs)))


def answers(relation: Algebra) -> Algebra:
    """Return the answer stream of a query in the sequence model that names no operator.

    Where its windows slide and its results are rows of their own, each result once, at the instant it comes. Where a
    window jumps, or a result is the state of a group, all of R at every instant of evaluation."""
    windows = list(own_frequency_windows(relation))
    if (alone := _by_substream(relation)) is not None:
        return alone
    if any(w.jumps for w in windows) or not _rows_of_their_own(relation):
        return AtInstants(relation)
    return each_result(relation)


def _by_substream(relation: Algebra) -> AtInstants | None:
    """Return the answers of each evaluation for its substream alone, where the columns of PARTITIONED BY are among
    those of GROUP BY; None elsewhere. Those that the select list leaves out come behind its items."""
    windows = list(dict.fromkeys(own_frequency_windows(relation)))
    grouped = relation
    while isinstance(grouped, Select | Project):
        grouped = grouped.input
    if len(windows) != 1 or windows[0].every is None or not windows[0].by or not isinstance(grouped, Aggregate):
        return None
    origins = [_column_of_window(grouped.input, column) for column in grouped.group]
    if not set(windows[0].by) <= set(origins):
        return None
    shown, positions = _showing(relation, tuple(origins.index(column) for column in windows[0].by))
    return AtInstants(shown, positions)


def _column_of_window(node: Algebra, column: int) -> int | None:
    """Return which column of the window below a column is; None for one that is computed, or of another source."""
    if isinstance(node, FrequencyWindow):
        return column
    if isinstance(node, Project):
        passed = node.expressions[column]
        return _column_of_window(node.input, passed.index) if isinstance(passed, Column) else None
    if isinstance(node, Select):
        return _column_of_window(node.input, column)
    if isinstance(node, Join | NRRJoin):
        width = len(node.left.schema)
        side, own = (node.left, column) if column < width else (node.right, column - width)
        return _column_of_window(side, own)
    return None


def _showing(node: Algebra, columns: tuple[int, ...]) -> tuple[Algebra, tuple[int, ...]]:
    """Return selections and projections over an aggregate with `columns` of it among theirs, and where these are."""
    if isinstance(node, Select):
        below, positions = _showing(node.input, columns)
        return replace(node, input=below), positions
    if not isinstance(node, Project):
        return node, columns
    below, positions = _showing(node.input, columns)
    passed = [e.index if isinstance(e, Column) else None for e in node.expressions]
    more = tuple(dict.fromkeys(i for i in positions if i not in passed))
    fields = tuple(below.schema[i] for i in more)
    expressions = tuple(Column(f.type, i, f.name) for i, f in zip(more, fields, strict=True))
    kept = [*passed, *more]
    shown = Project(below, (*node.expressions, *expressions), (*node.fields, *fields))
    return shown, tuple(kept.index(i) for i in positions)


def each_result(relation: Algebra) -> Algebra:
    """Return the stream of each result of a relation on the line, once, at the instant at which it enters."""
    changing = any(not is_nrr(scan) for scan in own_updated_relations(relation))
    told_by_bag = changing or not has_lives(relation)
    return RelationToStream(relation, StreamKind.ISTREAM) if told_by_bag else IndividualResults(relation)


def _rows_of_their_own(node: Algebra) -> bool:
    """Return whether every result is made of rows of streams and relations, none of the state of several."""
    if is_static(node) or isinstance(node, StreamToRelation | RelationScan):
        return True
    joined = isinstance(node, Join | NRRJoin | SemiJoin | OuterJoin)
    return (joined or isinstance(node, Select | Project | UnionAll)) and all(map(_rows_of_their_own, node.inputs))


def on_the_line(relation: Algebra) -> Algebra:
    """Return `relation` with each of its own windows as a window of the sequence model."""
    if relation.is_stream or isinstance(relation, FrequencyWindow):
        return relation
    if isinstance(relation, TimeModelWindow):
        translated = relation.on_the_line()
        assert translated is not None, "the binder refuses windows without a form in the sequence model"
        return translated
    children = tuple(on_the_line(c) if isinstance(c, Algebra) else c for c in relation.children)
    return relation.with_children(children)
