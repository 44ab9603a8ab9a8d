"""Sequence-model queries whose windows count the elements of one stream: numbers are their time [semantics 6]."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.algebra import (
    Algebra,
    Arrivals,
    AtInstants,
    FrequencyWindow,
    Project,
    RelationToStream,
    Sequenced,
    StreamKind,
    Window,
)
from penstock.algebra.nodes.windows import WindowKind
from penstock.expressions.nodes import columns_of, remap
from penstock.types import Schema


@dataclass(frozen=True)
class ByNumber:
    """A body in the time of numbers. columns: those of the stream that it reads; rows: the maximal number of rows of a
    window, None for no limit; every: the number of elements between two evaluations."""

    body: Algebra
    columns: tuple[int, ...]
    rows: int | None
    every: int


def by_number(node: Sequenced) -> ByNumber | None:
    """Return `node` in the time that the numbers of its elements are, None where it has no such form.

    Law: over one stream and without boundaries in time, instant number i is the i-th element. RANGE n TUPLES FREQUENCY
    m TUPLES is then RANGE n SLIDE m in that time, and all of R at every instant of evaluation is RSTREAM(R). So the
    expiration of an element is known on arrival, and the laws of windows in time hold: elements between two windows are
    dropped at once, and overlapping windows share panes.
    Unsound for several streams (their elements take turns), a WHERE of one window alone, partitions that are counted or
    evaluated by themselves, a RANGE in time, windows of different frequencies, and relations with updates, which have a
    time of their own.
    """
    if not isinstance(node.body, AtInstants) or len(node.streams) != 1 or node.relations:
        return None
    windows = node.windows
    every = windows[0].every
    plain = all(
        w.length is None and not (w.partition or w.by) and w.slide is None and isinstance(w.input, Arrivals)
        for w in windows
    )
    if every is None or not plain or any(w.every != every for w in windows):
        return None
    columns = tuple(sorted(_read(node.body.input))) or (0,)
    body = RelationToStream(_in_numbers(node.body.input, columns), StreamKind.RSTREAM)
    sizes = [w.rows for w in windows if w.rows is not None]
    return ByNumber(body, columns, max(sizes) if len(sizes) == len(windows) else None, every)


def _read(relation: Algebra) -> frozenset[int]:
    """Return the columns of the windows that are read: all, or those of a projection just above."""
    if isinstance(relation, FrequencyWindow):
        return frozenset(range(len(relation.schema)))
    if relation.is_stream:
        return frozenset()
    if isinstance(relation, Project) and isinstance(relation.input, FrequencyWindow):
        return frozenset().union(*map(columns_of, relation.expressions))
    return frozenset().union(*map(_read, relation.inputs))


def _in_numbers(relation: Algebra, columns: tuple[int, ...]) -> Algebra:
    if isinstance(relation, FrequencyWindow):
        arrivals = relation.input
        assert isinstance(arrivals, Arrivals)
        kept = replace(arrivals, columns=Schema(tuple(arrivals.schema[i] for i in columns)))
        kind = WindowKind.UNBOUNDED if relation.rows is None else WindowKind.RANGE
        return Window(kept, kind, relation.rows, relation.every)
    if relation.is_stream:
        return relation
    if isinstance(relation, Project) and isinstance(relation.input, FrequencyWindow):
        moved = tuple(remap(e, columns.index) for e in relation.expressions)
        return replace(relation, input=_in_numbers(relation.input, columns), expressions=moved)
    children = tuple(_in_numbers(c, columns) if isinstance(c, Algebra) else c for c in relation.children)
    return relation.with_children(children)
