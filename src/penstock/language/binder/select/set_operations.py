"""UNION, EXCEPT and INTERSECT: members with columns of common types (docs/language/queries.md)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import Algebra, Distinct, Except, Intersect, Project, UnionAll, unbounded
from penstock.algebra.nodes.base import common_domain
from penstock.algebra.nodes.internal import reaches_internal
from penstock.errors import counted
from penstock.expressions.coercion import cast_to, common_type
from penstock.expressions.nodes import Column, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.from_.internal import refuse_internal
from penstock.language.binder.select.values import bare_nulls
from penstock.language.limits import continues
from penstock.language.queries import QueryTree, SelectQuery, SetOperator, SetQuery, Star, ValuesQuery
from penstock.language.text import TextSpan
from penstock.types import Field, type_name


def bind_set(tree: SetQuery, bind: Callable[[QueryTree], Algebra], context: Context) -> Algebra:
    """Return the set operation over its members, bound by `bind`; a stream among them gets an unbounded window."""

    def member(part: QueryTree) -> Algebra:
        node = bind(part)
        return unbounded(node) if node.is_stream else node

    parts = _members(tree)
    nodes = context.each(member, parts)
    # INTERSECT ALL and UNION ALL keep their results; the others retract some, or emit equal tuples once.
    if not (tree.all and tree.kind is not SetOperator.EXCEPT) and any(reaches_internal(node) for node in nodes):
        refuse_internal(_word(tree), None, tree.operator_span, context)
    nodes = _alike(_word(tree), parts, nodes, context)
    if tree.kind is SetOperator.EXCEPT:
        return Except(nodes[0], nodes[1], tree.all)
    if tree.kind is SetOperator.INTERSECT:
        return Intersect(nodes[0], nodes[1], tree.all)
    return UnionAll(tuple(nodes)) if tree.all else Distinct(UnionAll(tuple(nodes)))


def _word(tree: SetQuery) -> str:
    return tree.kind.value + (" ALL" if tree.all else "")


def _members(tree: SetQuery) -> list[QueryTree]:
    """Return the operands of nested UNIONs of the same kind, left to right; of any other set operation its two."""
    if tree.kind is not SetOperator.UNION:
        return [tree.left, tree.right]
    members: list[QueryTree] = []
    todo: list[QueryTree] = [tree]
    while todo:
        part = todo.pop()
        if isinstance(part, SetQuery) and continues(part, tree):
            todo += [part.right, part.left]
        else:
            members.append(part)
    return members


def _alike(word: str, parts: list[QueryTree], nodes: list[Algebra], context: Context) -> list[Algebra]:
    """Return the members with casts to common types. Raises BindingFailed after P0302 or P0305."""
    first = nodes[0]
    for part, node in zip(parts[1:], nodes[1:], strict=True):
        if len(node.schema) != len(first.schema):
            message = f"{word} of {len(first.schema)} and {counted(len(node.schema), 'column')}"
            context.fail("P0305", message, part.span)
        context.guard(part.span, lambda node=node: common_domain((first, node)))  # type: ignore[misc]
    bare = [_bare_nulls(part) for part in parts]
    node_types = [
        [pa.null() if i in nulls else f.type for i, f in enumerate(node.schema)]
        for node, nulls in zip(nodes, bare, strict=True)
    ]
    columns = [list(column) for column in zip(*node_types, strict=True)]
    types = [_common(word, column, i, parts[-1].span, context) for i, column in enumerate(columns)]
    return [_as_types(node, types, nulls) for node, nulls in zip(nodes, bare, strict=True)]


def _bare_nulls(part: QueryTree) -> frozenset[int]:
    """Return the columns of a member that are a bare NULL and so have no type of their own; none after a star."""
    if isinstance(part, SetQuery):
        return frozenset.intersection(*map(_bare_nulls, _members(part)))
    if isinstance(part, ValuesQuery):
        return bare_nulls(part)
    if not isinstance(part, SelectQuery):
        return _bare_nulls(part.query)
    plain = itertools.takewhile(lambda value: not isinstance(value, Star), (item.value for item in part.items))
    return frozenset(i for i, value in enumerate(plain) if isinstance(value, exp.Null))


def _common(word: str, types: list[pa.DataType], column: int, span: TextSpan, context: Context) -> pa.DataType:
    common = common_type(types)
    if common is None:
        shown = " and ".join(dict.fromkeys(type_name(t) for t in types))
        context.fail("P0305", f"column {column + 1} of {word} is {shown}", span, "CAST one of them")
    return pa.string() if pa.types.is_null(common) else common


def _as_types(node: Algebra, types: list[pa.DataType], nulls: frozenset[int]) -> Algebra:
    if list(node.schema.types) == types:
        return node
    columns = [Column(f.type, i, f.name) for i, f in enumerate(node.schema)]
    expressions = tuple(
        Literal(t, None) if i in nulls and t != c.type else cast_to(c, t)
        for i, (c, t) in enumerate(zip(columns, types, strict=True))
    )
    return Project(node, expressions, tuple(Field(f.name, t) for f, t in zip(node.schema, types, strict=True)))
