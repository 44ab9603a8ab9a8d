"""An equality of expressions, null-safe or not, becomes an equality of columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, SemiJoin
from penstock.algebra.null_safe import same_keys
from penstock.algebra.optimizer.rules.support import column, is_volatile
from penstock.expressions.nodes import Call, Column, Expression, columns_of, conjunction, conjuncts, remap
from penstock.types import Field, Schema

#: Two expressions that must be equal, the left input's first, each over its own input.
_Key = tuple[Expression, Expression]


def compute_join_keys(node: Algebra) -> Algebra:
    """R ⋈(f(r) = g(s)) S = π(π_(r, f)(R) ⋈[f = g] π_(s, g)(S)): the keys are computed below, and dropped above. So for
    semi-joins, outer joins and joins with a NON RETROACTIVE relation.

    Law: f is decided by r alone, so it may be a column of R. It gives `CAST(r.k AS BIGINT) = s.k`, which coercion makes
    of keys of two types, an equi-join, where the condition alone would compare every pair. `f <=> g`, also written `f =
    g OR f IS NULL AND g IS NULL`, is TRUE exactly where COALESCE(f, 0) = COALESCE(g, 0) and (f IS NULL) = (g IS NULL).
    Unsound for: volatile f (drawn once per r, not per pair); equalities whose side reads both inputs stay conditions.
    """
    if not isinstance(node, Join | NRRJoin | SemiJoin | OuterJoin) or node.residual is None:
        return node
    width, right_width = len(node.left.schema), len(node.right.schema)
    parts = conjuncts(node.residual)
    keys = {part: found for part in parts if (found := _keys(part, width))}
    if not keys:
        return node
    pairs = tuple(key for found in keys.values() for key in found)
    left, left_places = _with_keys(node.left, [f for f, _ in pairs])
    right, right_places = _with_keys(node.right, [g for _, g in pairs])
    offset = len(left.schema) - width
    equal = tuple(dict.fromkeys((*node.equal, *zip(left_places, right_places, strict=True))))
    remaining = tuple(remap(p, lambda i: i if i < width else i + offset) for p in parts if p not in keys)
    joined: Algebra = replace(node, left=left, right=right, equal=equal, residual=conjunction(remaining))
    # A semi-join has the columns of its left side, and perhaps a mark.
    beside = len(node.schema) - width if isinstance(node, SemiJoin) else right_width
    kept = (*range(width), *range(width + offset, width + offset + beside))
    if kept == tuple(range(len(joined.schema))):
        return joined
    fields = node.schema.fields
    return Project(joined, tuple(column(f, i) for f, i in zip(fields, kept, strict=True)), fields)


def _keys(part: Expression, width: int) -> tuple[_Key, ...]:
    """Return the equalities between the inputs that are together equivalent to `part`; none where it is something
    else."""
    compared = None if is_volatile(part) else _compared(part)
    if compared is None:
        return ()
    (left, right), null_safe = compared
    if left.type != right.type:
        return ()
    for f, g in ((left, right), (right, left)):
        reads_f, reads_g = columns_of(f), columns_of(g)
        if reads_f and reads_g and max(reads_f) < width <= min(reads_g):
            own = remap(g, lambda i: i - width)
            return ((f, own),) if not null_safe else same_keys(f, own) or ()
    return ()


def _compared(part: Expression) -> tuple[_Key, bool] | None:
    """Return the two values that `part` requires to be equal, and whether NULL equals NULL."""
    if not isinstance(part, Call):
        return None
    if part.function in ("EQ", "EQ_NULL_SAFE"):
        first, second = part.arguments
        return (first, second), part.function == "EQ_NULL_SAFE"
    if part.function != "OR":
        return None
    for one, other in (part.arguments, part.arguments[::-1]):
        if isinstance(one, Call) and one.function == "EQ":
            gaps = {Call(part.type, "IS_NULL", (value,)) for value in one.arguments}
            if len(conjuncts(other)) == 2 and set(conjuncts(other)) == gaps:
                first, second = one.arguments
                return (first, second), True
    return None


def _with_keys(node: Algebra, keys: Iterable[Expression]) -> tuple[Algebra, list[int]]:
    """Return `node` with a column for each of `keys` that is none yet, and the positions of all."""
    schema: Schema = node.schema
    computed: dict[Expression, int] = {}
    places = [
        key.index if isinstance(key, Column) else computed.setdefault(key, len(schema) + len(computed)) for key in keys
    ]
    if not computed:
        return node, places
    fields = schema.fields + tuple(Field(f"key{n}", key.type) for n, key in enumerate(computed, 1))
    columns = tuple(column(field, i) for i, field in enumerate(schema))
    return Project(node, columns + tuple(computed), fields), places
