"""An equality of expressions becomes an equality of columns."""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.optimizer.rules.support import column, is_volatile
from penstock.expressions.nodes import Call, Expression, columns_of, conjunction, conjuncts, remap
from penstock.types import Field, Schema


def compute_join_keys(node: Algebra) -> Algebra:
    """R ⋈(f(r) = g(s)) S = π(π_(r, f)(R) ⋈[f = g] π_(s, g)(S)): the keys are computed below, and dropped above.

    Law: f is decided by r alone, so it may be a column of R. It gives `CAST(r.k AS BIGINT) = s.k`, which coercion makes
    of keys of two types, an equi-join, where the condition alone would compare every pair.
    Unsound for: volatile f (drawn once per r, not per pair); equalities whose side reads both inputs stay conditions.
    """
    if not isinstance(node, Join) or node.residual is None:
        return node
    width = len(node.left.schema)
    parts = conjuncts(node.residual)
    keys = {part: key for part in parts if (key := _key(part, width)) is not None}
    if not keys:
        return node
    left = _with_keys(node.left, tuple(f for f, _ in keys.values()))
    right = _with_keys(node.right, tuple(remap(g, lambda i: i - width) for _, g in keys.values()))
    offset = len(left.schema) - width
    equal = node.equal + tuple((width + n, len(node.right.schema) + n) for n in range(len(keys)))
    remaining = tuple(remap(p, lambda i: i if i < width else i + offset) for p in parts if p not in keys)
    joined = Join(left, right, equal, conjunction(remaining))
    kept = (*range(width), *range(width + offset, width + offset + len(node.right.schema)))
    fields = node.schema.fields
    return Project(joined, tuple(column(f, i) for f, i in zip(fields, kept, strict=True)), fields)


def _key(part: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Return the two sides of an equality between the inputs, the left input's first."""
    if not (isinstance(part, Call) and part.function == "EQ") or is_volatile(part):
        return None
    left, right = part.arguments
    if left.type != right.type:
        return None
    for f, g in ((left, right), (right, left)):
        reads_f, reads_g = columns_of(f), columns_of(g)
        if reads_f and reads_g and max(reads_f) < width <= min(reads_g):
            return f, g
    return None


def _with_keys(node: Algebra, keys: tuple[Expression, ...]) -> Project:
    schema: Schema = node.schema
    fields = schema.fields + tuple(Field(f"key{n}", key.type) for n, key in enumerate(keys, 1))
    columns = tuple(column(field, i) for i, field in enumerate(schema))
    return Project(node, columns + keys, fields)
