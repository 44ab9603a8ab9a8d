"""Selection on the stream instead of on its window."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra, TimeModelWindow
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind, evaluation_period
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.nodes.session_window import SessionWindow
from penstock.algebra.optimizer.rules.support import is_volatile, over_inputs, same_for_equal, select, split
from penstock.expressions.nodes import Expression, columns_of, conjuncts


def push_selection_below_window(root: Algebra) -> Algebra:
    """σp(W(S)) = W(σp(S)) for a time window W, with or without SLIDE, and for a row window, or one of sessions, where p
    reads nothing but the columns of its PARTITION BY.

    Law: a time window gives every element its validity from the element's own timestamp; whether others pass p does
    not matter. The time line still begins at the first element of S, since t0 is taken at the scan, below p.
    A row window judges an element by others of its partition, and a session is of one: p keeps or drops a partition
    whole.
    Unsound for:
    - ROWS windows otherwise: the last 3 elements that satisfy p are not those of the last 3 that satisfy p. Nor for a p
      that distinguishes members of a partition: -0.0 and 0.0 are one partition, and differ as text;
    - SESSION windows otherwise: an element that p drops may be what joins two that it keeps. Nor under a budget, in
      which what p drops counts;
    - an RSTREAM above that is evaluated at arrivals (no common SLIDE): S [RANGE 10] WHERE p emits all of R also when
      an element arrives that p drops; below the window p would hide that arrival [semantics 4.3]. Only where R is
      instantaneous is nothing lost: R is empty at such instants;
    - an RSTREAM at slide boundaries over a relation that outlives its windows: COUNT(*) of S [RANGE 10 SLIDE 2] WHERE p
      is emitted, with `--drain`, until the last element has expired, also when p drops it;
    - volatile conjuncts, and a RelationToStream below the window: ISTREAM(R) cancels by whole tuples of R, and its
      time line is R's. The selection stops above it.
    """
    return _visit(root, False, {})


def _visit(node: Algebra, hears_dropped: bool, known: dict[tuple[int, bool], tuple[Algebra, Algebra]]) -> Algebra:
    """known: by identity and `hears_dropped`, a visited node, kept for its identity, and its result."""
    visit = id(node), hears_dropped
    if visit not in known:
        known[visit] = node, _visited(node, hears_dropped, known)
    return known[visit][1]


def _visited(node: Algebra, hears_dropped: bool, known: dict[tuple[int, bool], tuple[Algebra, Algebra]]) -> Algebra:
    if isinstance(node, RelationToStream):
        hears_dropped = _hears_dropped(node)
    elif isinstance(node, TimeModelWindow):
        hears_dropped = False
    elif isinstance(node, Select) and not hears_dropped:
        node = _moved(node)
    return over_inputs(node, lambda child: _visit(child, hears_dropped, known))


def _hears_dropped(node: RelationToStream) -> bool:
    """Return whether elements that the WHERE drops decide at which instants this operator emits."""
    if node.kind is not StreamKind.RSTREAM:
        return False
    return not (node.input.is_instantaneous if evaluation_period(node) is None else node.input.is_windowed)


def _moved(node: Select) -> Algebra:
    window = node.input
    if not isinstance(window, TimeModelWindow | SessionWindow) or (
        isinstance(window, SessionWindow) and window.budget is not None
    ):
        return node
    if isinstance(window, TimeModelWindow) and window.judges_alone:
        stay, move = split(conjuncts(node.predicate), is_volatile)
    else:
        partition = frozenset(window.partition)

        def whole_partitions(part: Expression) -> bool:
            return bool(partition) and columns_of(part) <= partition and same_for_equal(part) and not is_volatile(part)

        move, stay = split(conjuncts(node.predicate), whole_partitions)
    return select(replace(window, input=select(window.input, move)), stay) if move else node
