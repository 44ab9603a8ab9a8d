"""Joins of joins become one join of all inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.algebra.nodes.aggregate_lookup import find_probe
from penstock.algebra.nodes.base import Algebra, is_static
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.multi_join import MultiJoin, offsets
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.optimizer.rules.support import column, is_volatile, select
from penstock.expressions.nodes import (
    Call,
    Column,
    Expression,
    are_small,
    columns_of,
    conjunction,
    conjuncts,
    remap,
    substitute_all,
)
from penstock.types import Field

Pairs = tuple[tuple[int, int], ...]


def form_multi_joins(node: Algebra) -> Algebra:
    """(A ⋈ B) ⋈ C = ⋈(A, B, C), with the columns put back in order.

    Law: the inner join is associative and commutative, at every τ; equality of keys (neither NULL) is transitive, so
    A.k = B.k AND B.k = C.k is one class {A.k, B.k, C.k}, whose order does not matter. Two columns of one input in a
    class become a selection on that input. A projection between two joins is applied above them, or where it computes
    a key, on the input that it reads.
    Not done for joins with a static relation (which store nothing) or one of a single row (which would keep the others
    from being cut by their key), nor for one that only looks groups up (`nodes/aggregate_lookup.py`), which never
    receives their changes; and not through a projection that computes a key from several inputs, or one that would
    repeat large expressions (`are_small`).
    Unsound for: outer joins; a projection with volatile expressions between the joins.
    """
    if not isinstance(node, Join) or find_probe(node) is not None:
        return node
    flat = _flat(node, frozenset())
    return node if len(flat.members) < 3 else _joined(flat, node.schema.fields)


@dataclass(frozen=True)
class _Flat:
    """A tree of joins, flattened. columns: its output over the members' rows side by side; equal: pairs of positions in
    those rows; parts: further conditions over them."""

    members: tuple[Algebra, ...]
    columns: tuple[Expression, ...]
    equal: Pairs = ()
    parts: tuple[Expression, ...] = ()


def _flat(node: Algebra, keys: frozenset[int]) -> _Flat:
    """Return `node` flattened; `keys`: the output columns that must be columns of a member, as they are joined on."""
    flat = None
    if isinstance(node, MultiJoin):
        flat = _flat_multi(node)
    elif isinstance(node, Join) and not _stays_whole(node):
        flat = _flat_join(node)
    elif isinstance(node, Project) and not any(map(is_volatile, node.expressions)):
        flat = _flat_project(node, keys)
    if flat is None or not all(isinstance(flat.columns[key], Column) for key in keys):
        return _leaf(node)
    return flat


def _stays_whole(node: Join) -> bool:
    apart = any(is_static(side) or frozenset() in side.keys for side in (node.left, node.right))
    return apart or find_probe(node) is not None


def _leaf(node: Algebra) -> _Flat:
    return _Flat((node,), tuple(column(field, i) for i, field in enumerate(node.schema)))


def _flat_multi(node: MultiJoin) -> _Flat:
    classes = [tuple(node.class_columns(n)) for n in range(len(node.classes))]
    equal = tuple((columns[0], other) for columns in classes for other in columns[1:])
    return replace(_leaf(node), members=node.members, equal=equal, parts=_conditions(node.residual))


def _flat_join(node: Join) -> _Flat:
    left = _flat(node.left, frozenset(pair[0] for pair in node.equal))
    right = _flat(node.right, frozenset(pair[1] for pair in node.equal))
    width = sum(len(member.schema) for member in left.members)
    moved = tuple(remap(c, lambda i: i + width) for c in right.columns)
    columns = left.columns + moved
    equal = tuple((_place(left.columns[i]), _place(moved[j])) for i, j in node.equal)
    parts = substitute_all(_conditions(node.residual), columns)
    return _Flat(
        left.members + right.members,
        columns,
        left.equal + tuple((i + width, j + width) for i, j in right.equal) + equal,
        left.parts + tuple(remap(p, lambda i: i + width) for p in right.parts) + parts,
    )


def _flat_project(node: Project, keys: frozenset[int]) -> _Flat | None:
    below = _flat(node.input, frozenset())
    if len(below.members) < 2:
        return None
    substituted = substitute_all(node.expressions, below.columns)
    if not are_small(substituted, node.expressions, below.columns):
        return None
    columns = list(substituted)
    for key in sorted(keys):
        if not isinstance(columns[key], Column):
            member = _only_member(columns[key], below.members)
            if member is None:
                return None
            below, columns = _with_key(below, columns, key, member)
    return replace(below, columns=tuple(columns))


def _only_member(expression: Expression, members: tuple[Algebra, ...]) -> int | None:
    """Return the only member whose columns `expression` reads."""
    starts = offsets(members)
    members_read = {max(n for n, start in enumerate(starts) if start <= c) for c in columns_of(expression)}
    return members_read.pop() if len(members_read) == 1 else None


def _with_key(flat: _Flat, columns: list[Expression], key: int, member: int) -> tuple[_Flat, list[Expression]]:
    """Return the members with the expression `columns[key]` as a further column of `member`."""
    old = flat.members[member]
    start, width = offsets(flat.members)[member], len(old.schema)
    computed = remap(columns[key], lambda i: i - start)
    fields = (*old.schema.fields, Field(f"key{width}", computed.type))
    kept = tuple(column(field, i) for i, field in enumerate(old.schema))
    wider = Project(old, (*kept, computed), fields)

    def place(i: int) -> int:
        return i if i < start + width else i + 1

    moved = [remap(c, place) for c in columns]
    moved[key] = column(fields[-1], start + width)
    members = (*flat.members[:member], wider, *flat.members[member + 1 :])
    equal = tuple((place(i), place(j)) for i, j in flat.equal)
    return _Flat(members, tuple(moved), equal, tuple(remap(p, place) for p in flat.parts)), moved


def _joined(flat: _Flat, fields: tuple[Field, ...]) -> Algebra:
    """Return the multi-join, below a projection where the columns are not the members' side by side."""
    starts = offsets(flat.members)
    members = list(flat.members)
    classes: list[tuple[int | None, ...]] = []
    for positions in _classes(flat.equal):
        own: list[list[int]] = [[] for _ in members]
        for position in sorted(positions):
            member = max(n for n, start in enumerate(starts) if start <= position)
            own[member].append(position - starts[member])
        for member, columns in enumerate(own):
            members[member] = _alike(members[member], columns)
        if sum(bool(columns) for columns in own) > 1:
            classes.append(tuple(columns[0] if columns else None for columns in own))
    multi = MultiJoin(tuple(members), tuple(classes), conjunction(flat.parts))
    if [c.index if isinstance(c, Column) else -1 for c in flat.columns] == list(range(len(multi.schema))):
        return multi
    return Project(multi, flat.columns, fields)


def _classes(equal: Pairs) -> Iterable[frozenset[int]]:
    """Return the sets of positions that `equal` makes equal, in order of their first member."""
    known: dict[int, frozenset[int]] = {}
    for i, j in equal:
        merged = known.get(i, frozenset({i})) | known.get(j, frozenset({j}))
        known |= dict.fromkeys(merged, merged)
    return sorted(set(known.values()), key=min)


def _alike(member: Algebra, columns: list[int]) -> Algebra:
    """Return the selection on `member` that its `columns` are all equal."""
    schema = member.schema
    first = column(schema[columns[0]], columns[0]) if columns else None
    parts = tuple(Call(pa.bool_(), "EQ", (first, column(schema[c], c))) for c in columns[1:] if first is not None)
    return select(member, parts)


def _conditions(residual: Expression | None) -> tuple[Expression, ...]:
    return () if residual is None else conjuncts(residual)


def _place(expression: Expression) -> int:
    assert isinstance(expression, Column), "a key is a column"
    return expression.index
