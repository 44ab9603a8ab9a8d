"""Which promises of streams the joins of a FROM clause use, by its text alone (docs/promises.md).

The inputs stand in the order of FROM. The first two, by that order, that a rule joins become one, in the place of the
first; and so on until there is no such pair. These joins stay binary; what is left is joined as without promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.algebra import Algebra, OuterJoin, Project, Select, SemiJoin
from penstock.algebra.nodes.base import common_domain
from penstock.algebra.nodes.promised import JoinResult
from penstock.algebra.optimizer.rules.constraints.joins import leaving_of, promised_join
from penstock.algebra.optimizer.rules.constraints.pairs import ComparedInputs, compared_columns, plain_column
from penstock.expressions.calls.functions import build_call
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import Call, Column, Expression, columns_of, conjunction, remap
from penstock.language.binder.context import Context
from penstock.language.binder.inputs.inputs import FromInput
from penstock.language.binder.inputs.keyed import keyed_sides


@dataclass(frozen=True)
class PlacedInput:
    """An input of FROM, or the join of several. places: of its columns in FROM."""

    member: FromInput
    places: tuple[int, ...]

    def local(self, expression: Expression) -> Expression:
        return remap(expression, self.places.index)

    def whole(self, conditions: Sequence[Expression]) -> Algebra:
        """Return its relation with the conditions over it alone."""
        predicate = conjunction(tuple(map(self.local, conditions)))
        return self.member.node if predicate is None else Select(self.member.node, predicate)


class Equalities:
    """The columns of FROM that conditions compare by `=`, also through others."""

    def __init__(self, conditions: Sequence[Expression]) -> None:
        self._parents: dict[int, int] = {}
        for condition in conditions:
            pair = plain_pair(condition)
            if pair is not None:
                one, other = map(self.root, pair)
                self._parents[max(one, other)] = min(one, other)

    def root(self, column: int) -> int:
        """Return the first of the columns that equal a column; the same one for all of them."""
        while (parent := self._parents.get(column, column)) != column:
            column = parent
        return column


def plain_pair(condition: Expression) -> tuple[int, int] | None:
    """Return the two columns that a condition compares by `=`, of one type or widened numbers; None for another."""
    if not isinstance(condition, Call) or condition.function != "EQ":
        return None
    one, other = map(plain_column, condition.arguments)
    return None if one is None or other is None else (one, other)


def joined_by_promises(
    inputs: Sequence[FromInput], conditions: Sequence[Expression], context: Context
) -> tuple[list[PlacedInput], list[Expression]]:
    """Return the inputs after the joins that promises make, and the conditions that are left, over the columns of FROM.
    Raises BindingFailed after P0302.
    """
    placed: list[PlacedInput] = []
    for member in inputs:
        start = sum(len(one.places) for one in placed)
        placed.append(PlacedInput(member, tuple(range(start, start + len(member.node.schema)))))
    left = list(conditions)
    equalities = Equalities(conditions)
    while (found := _first_pair(placed, equalities)) is not None:
        first, second = (placed[i] for i in found)
        joined = _joined(first, second, left, equalities, context)
        placed[found[0]] = joined
        del placed[found[1]]
    return placed, left


def _first_pair(placed: Sequence[PlacedInput], equalities: Equalities) -> tuple[int, int] | None:
    for i, one in enumerate(placed):
        for j in range(i + 1, len(placed)):
            if leaving_of(ComparedInputs(one.member.node, placed[j].member.node, _pairs(one, placed[j], equalities))):
                return i, j
    return None


def _pairs(one: PlacedInput, other: PlacedInput, equalities: Equalities) -> frozenset[tuple[int, int]]:
    partners: dict[int, list[int]] = {}
    for b, right in enumerate(other.places):
        partners.setdefault(equalities.root(right), []).append(b)
    return frozenset((a, b) for a, left in enumerate(one.places) for b in partners.get(equalities.root(left), ()))


def _joined(
    one: PlacedInput, other: PlacedInput, conditions: list[Expression], equalities: Equalities, context: Context
) -> PlacedInput:
    """Return the join of two inputs by promises; the conditions that it takes leave `conditions`."""
    context.guard(other.member.span, lambda: common_domain((one.member.node, other.member.node)))
    nodes, both = [], (*one.places, *other.places)
    for side in (one, other):
        alone = [c for c in conditions if columns_of(c) and columns_of(c) <= set(side.places) and not volatile(c)]
        conditions[:] = [c for c in conditions if c not in alone]
        nodes.append(side.whole(alone))
    taken = [c for c in conditions if columns_of(c) and columns_of(c) <= set(both) and not volatile(c)]
    conditions[:] = [c for c in conditions if c not in taken]
    mine = [remap(c, both.index) for c in taken]
    width = len(one.places)
    pairs = _pairs(one, other, equalities)
    known = {plain_pair(c) for c in mine}
    schemas = one.member.node.schema, other.member.node.schema
    for a, b in sorted(pairs):
        if not known & {(a, width + b), (width + b, a)}:
            implied = [Column(schemas[0][a].type, a, schemas[0][a].name)]
            implied.append(Column(schemas[1][b].type, width + b, schemas[1][b].name))
            mine.append(build_call("EQ", implied))
    keyed = keyed_sides(nodes[0], nodes[1], mine)
    node = promised_join(keyed.left, keyed.right, keyed.equal, keyed.residual, JoinResult.INNER, pairs)
    assert node is not None, "a rule holds of the two"
    kept = keyed.without_keys(node, [*range(keyed.width), *keyed.right_places])
    internal = one.member.internal or other.member.internal
    return PlacedInput(FromInput(kept, one.member.span, internal), both)


def outer_by_promises(joined: Algebra) -> Algebra:
    """Return an outer join or a semi-join whose rows leave by promises where a rule holds; else `joined` itself. It may
    stand under projections that drop computed keys.
    """
    if isinstance(joined, Project):
        below = outer_by_promises(joined.input)
        return joined if below is joined.input else replace(joined, input=below)
    if not isinstance(joined, OuterJoin | SemiJoin) or (isinstance(joined, OuterJoin) and joined.single):
        return joined
    kind = JoinResult(joined.kind.value)
    compared = compared_columns(joined.left, joined.right, joined.equal)
    node = promised_join(joined.left, joined.right, joined.equal, joined.residual, kind, compared)
    return joined if node is None else node
