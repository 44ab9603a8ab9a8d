"""The condition of a join in a plan as data: pairs of equal columns, and what is left of it."""

from __future__ import annotations

from penstock.algebra import Join, NRRJoin, OuterJoin, PreferringJoin, PreferringLookUp, SemiJoin
from penstock.algebra.nodes.join import Pairs
from penstock.expressions.nodes import Expression
from penstock.language.plan_form import fault
from penstock.language.plans import checks
from penstock.language.plans.node_form import Below, Fields, given
from penstock.language.plans.scalar_binding import NamedColumns
from penstock.language.plans.scalar_text import column_names, written
from penstock.types import Schema


def write_condition(node: Join | NRRJoin | SemiJoin | OuterJoin | PreferringJoin | PreferringLookUp) -> Fields:
    left, right = column_names(node.left.schema), column_names(node.right.schema)
    both = column_names(Schema(node.left.schema.fields + node.right.schema.fields))
    residual = None if node.residual is None else written(node.residual, both)
    return given(equal=[[left[i], right[j]] for i, j in node.equal], residual=residual)


def read_condition(below: Below) -> tuple[Pairs, Expression | None]:
    """Return the equal columns and the residual of a join, whose inputs are checked too."""
    checks.joined(below.inputs, below.pointer)
    left, right = (NamedColumns.of(side.schema) for side in below.inputs[:2])
    equal: list[tuple[int, int]] = []
    for item in below.fields["equal"].items() if "equal" in below.fields else ():
        pair = item.items()
        if len(pair) != 2:
            raise fault(item.pointer, "a pair of columns is needed, of the left and of the right input")
        found = left.position(pair[0]), right.position(pair[1])
        checks.same_type(left.schema[found[0]].type, right.schema[found[1]].type, item.pointer)
        if found in equal:
            raise fault(item.pointer, "this pair of columns occurs twice", "P0206")
        equal.append(found)
    both = NamedColumns.of(Schema(left.schema.fields + right.schema.fields))
    residual = below.fields.get("residual")
    return tuple(equal), None if residual is None else below.scalars.condition(residual, both)
