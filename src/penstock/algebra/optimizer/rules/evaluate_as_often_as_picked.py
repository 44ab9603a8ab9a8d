"""The outer frequency decides how often the inner query need be evaluated (`[csql 5]`, [semantics 6])."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import Algebra, StreamToRelation
from penstock.algebra.nodes.frequency import Arrivals, AtInstants, Frequency, Sequenced
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind, evaluation_period
from penstock.algebra.nodes.rowwise import Project


def evaluate_as_often_as_picked(node: Algebra) -> Algebra:
    """F_n of R evaluated at every m-th element = R evaluated at every nm-th; F_t of R evaluated at every u = R
    evaluated at every t, where t is a multiple of u. R has exactly one row: an aggregate without groups.

    Law: each evaluation gives one answer, so the n-th answers are those of every n-th evaluation, and the last answer
    of a slot is that of the boundary which ends it. What a window holds at an evaluation does not depend on earlier
    ones.
    Unsound for:
    - groups, or HAVING: an evaluation may give many answers or none;
    - windows over several streams, each evaluated at elements of its own, or PARTITIONED BY, evaluated by substreams;
    - a window without a frequency beside one with: it is evaluated in between;
    - frequencies in time that do not divide: F_3 of F_2 emits at 6 the content at 6, at 3 that at 2.
    """
    if not isinstance(node, Frequency) or node.partition:
        return node
    below = node.input
    if node.rows is not None and isinstance(below, Sequenced):
        return _counted(below, node.rows) or node
    if node.slot is not None and isinstance(below, RelationToStream) and below.kind is StreamKind.RSTREAM:
        period = evaluation_period(below)
        if period is not None and node.slot % period[0] == 0 == period[1] and _has_one_row(below.input):
            slot = node.slot
            return replace(below, input=_moved(below.input, lambda window: replace(window, slide=slot)))
    return node


def _counted(sequence: Sequenced, times: int) -> Algebra | None:
    body, windows = sequence.body, sequence.windows
    if not isinstance(body, AtInstants) or len(sequence.streams) != 1 or not _has_one_row(body.input):
        return None
    (every, *others) = {window.every for window in windows}
    alike = not others and not any(window.by for window in windows)
    if every is None or not alike or not all(isinstance(window.input, Arrivals) for window in windows):
        return None
    frequency = every * times
    relation = _moved(body.input, lambda window: replace(window, every=frequency))
    return replace(sequence, body=AtInstants(relation))


def _has_one_row(relation: Algebra) -> bool:
    while isinstance(relation, Project):
        relation = relation.input
    return isinstance(relation, Aggregate) and not relation.group


def _moved(relation: Algebra, move: Callable[..., Algebra]) -> Algebra:
    """Return `relation` with its own windows replaced by `move`."""
    if isinstance(relation, StreamToRelation):
        return move(relation)
    if relation.is_stream:
        return relation
    children = tuple(_moved(c, move) if isinstance(c, Algebra) else c for c in relation.children)
    return relation.with_children(children)
