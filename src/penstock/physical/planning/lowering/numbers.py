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
    """body: in the time of numbers; columns: those of the stream that it reads; rows: no window holds more, None for no
    limit; every: at how many elements it is evaluated."""

    body: Algebra
    columns: tuple[int, ...]
    rows: int | None
    every: int


def by_number(node: Sequenced) -> ByNumber | None:
    """`node` in the time that the numbers of its elements are, None where it has no such form.

    Law: over one stream and without boundaries in time, instant number i is the i-th element. RANGE n TUPLES FREQUENCY
    m TUPLES is then RANGE n SLIDE m in that time, and all of R at every instant of evaluation is RSTREAM(R). So an
    element tells its end when it comes, and what holds of windows in time holds here: what falls between two windows is
    left out at once, and overlapping ones share panes.
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
    """Return the columns that are read of the windows: all, or those of a projection just above."""
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
