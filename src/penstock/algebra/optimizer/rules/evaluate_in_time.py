"""A query whose windows are evaluated at the boundaries of one frequency in time, in the time model."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.frequency import Arrivals, AtInstants, Sequenced
from penstock.algebra.nodes.frequency_window import FrequencyWindow
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.nodes.windows import RowWindow, Window, WindowKind


def evaluate_in_time(node: Algebra) -> Algebra:
    """F_t(R1 ⋈ R2) = F_t(R1) ⋈ F_t(R2), and so for every operator: Sequenced(AtInstants(R)) over windows with
    FREQUENCY t = RSTREAM(R) over the same windows with SLIDE t.

    Law: an operator of the algebra is local, R(τ) follows from its inputs' R(τ) alone (`[csql 3.3]`), so it is all one
    whether the whole query or each of its windows is evaluated every t. A boundary follows all elements up to it,
    so no order within a timestamp is seen there; a relation with updates is there what it is at that tick. Then what is
    known of windows in time holds: selections move below them, panes are shared, groups are cut over shards.
    Unsound for:
    - frequencies in tuples: every 100th pair of a join is not made of every 100th elements, and the horses among 100
      tuples are not 100 horses;
    - two frequencies in time, or a window without one: between the boundaries of one the other moves;
    - ISTREAM and DSTREAM, whose time lines begin with the first instant and not with the first timestamp of a source.
    """
    if not isinstance(node, Sequenced) or not isinstance(node.body, AtInstants) or not node.in_time:
        return node
    return RelationToStream(_in_time(node.body.input, node.streams), StreamKind.RSTREAM, by_values=True)


def _in_time(relation: Algebra, streams: tuple[Algebra, ...]) -> Algebra:
    if isinstance(relation, FrequencyWindow):
        stream = _arriving(relation.input, streams)
        slide, align = relation.slide, relation.align
        if relation.rows is not None:
            return RowWindow(stream, relation.rows, None, relation.partition, relation.length, slide, align)
        kind = WindowKind.UNBOUNDED if relation.length is None else WindowKind.RANGE
        return Window(stream, kind, relation.length, slide, align)
    if relation.is_stream:
        return relation
    children = tuple(_in_time(c, streams) if isinstance(c, Algebra) else c for c in relation.children)
    return relation.with_children(children)


def _arriving(below: Algebra, streams: tuple[Algebra, ...]) -> Algebra:
    if isinstance(below, Select):
        return replace(below, input=_arriving(below.input, streams))
    assert isinstance(below, Arrivals)
    return streams[below.place]
