"""Rules 1 and 2: a row that refers to a parent leaves when the parent has come for certain.

Law: let C refer to P WITHIN k by pairs of columns that the join compares, the parent's being all of a UNIQUE of P. A
row of C has at most one partner, which comes before the row is settled; so it leaves then. WITHIN 0 that is after its
own instant, and C is not stored. With SLIDE of P the partner enters at the boundary.

Counter-examples: without UNIQUE a second row of P may come later: P (id, x) 0:(0,1) 3:(0,0), C 1:0. With a reference
wider than what is compared a NULL promises nothing: P (a, b) UNIQUE (a) 4:(1,0), C (a, b) 3:(1,NULL), joined on a.
Without the shift by SLIDE: P [RANGE 2 SLIDE 3] 5:1, C 5:1 meet at 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.internal import Internal
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.promised import JoinResult, Leaving, PromisedJoin
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.windows import Window, WindowKind
from penstock.algebra.optimizer.rules.constraints.pairs import ComparedInputs
from penstock.algebra.properties.promises import ForeignKey, PassedPromise, Unique
from penstock.algebra.properties.update_pattern import Pattern


def leaving_by_reference(inputs: ComparedInputs) -> Iterator[Leaving]:
    """Yield why rows leave that refer to the other side."""
    for side in (0, 1):
        compared = inputs.exchanged(side)
        for reference in inputs.sides[side].promises:
            unique = _parent(reference, inputs.sides[1 - side].promises)
            if unique is not None and set(zip(reference.columns, _parent_columns(reference, unique), strict=True)) <= (
                compared
            ):
                yield Leaving(side, reference, (), unique.slide, unique.align)


def met_at_once(node: PromisedJoin) -> Algebra | None:
    """Return what answers as a join whose rows leave after their own instant alone: of such a side only the elements of
    the instant are joined, and the results stay. None for another join.

    Law: over inputs that never lose a row a pair is made at the later of its two instants, and stays. A row that leaves
    after its own instant makes the pairs of a row with the window NOW, whatever else would end it later.

    Counter-example: with a window P [RANGE 5] a pair ends with the row of P; the results of NOW INTERNAL would stay.
    """
    immediate = {one.side for one in node.leaving if one.is_immediate and one.slide is None}
    monotonic = all(side.pattern is Pattern.MONOTONIC for side in node.inputs)
    if node.joined is not JoinResult.INNER or not monotonic or {one.side for one in node.leaving} != immediate:
        return None
    left, right = (_now(one) if side in immediate else one for side, one in enumerate(node.inputs))
    if left is None or right is None:
        return None
    return Internal(Join(left, right, node.equal, node.residual), by_life=True)


def _now(node: Algebra) -> Algebra | None:
    """Return the elements of the instant alone of a selection and projection of a stream; None for another relation."""
    if isinstance(node, Window):
        return replace(node, kind=WindowKind.NOW) if node.kind is WindowKind.UNBOUNDED and node.slide is None else None
    below = _now(node.input) if isinstance(node, Select | Project) else None
    return None if below is None or not isinstance(node, Select | Project) else replace(node, input=below)


def _parent(reference: PassedPromise, promises: tuple[PassedPromise, ...]) -> PassedPromise | None:
    """Return the UNIQUE of the other side whose columns are those that a reference names."""
    to = reference.promise
    if not isinstance(to, ForeignKey):
        return None
    for one in promises:
        base = one.bases[0]
        named = base.source == to.parent and set(base.promise.columns) == set(to.parent_columns)
        if named and isinstance(base.promise, Unique):
            return one
    return None


def _parent_columns(reference: PassedPromise, unique: PassedPromise) -> list[int]:
    """Return where the columns that a reference names are in the other side."""
    to = reference.promise
    assert isinstance(to, ForeignKey), "the caller has checked"
    return [unique.columns[unique.promise.columns.index(column)] for column in to.parent_columns]
