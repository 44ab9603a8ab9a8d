"""UNION, EXCEPT and INTERSECT: members with columns of common types (LANGUAGE 4.2)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.algebra import Algebra, Distinct, Except, Intersect, Project, UnionAll, Window, WindowKind
from penstock.algebra.internal import reaches_internal
from penstock.algebra.nodes import common_domain
from penstock.errors import counted
from penstock.expressions.coercion import cast_to, common_type
from penstock.expressions.nodes import Column
from penstock.language.binder.context import Context
from penstock.language.binder.internal import refuse_internal
from penstock.language.queries import QueryTree, SetKind, SetQuery
from penstock.language.text import Span
from penstock.types import Field, type_name


def bind_set(tree: SetQuery, bind: Callable[[QueryTree], Algebra], context: Context) -> Algebra:
    """The set operation over its members as `bind` has them; a stream among them is unbounded."""

    def member(part: QueryTree) -> Algebra:
        node = bind(part)
        return Window(node, WindowKind.UNBOUNDED) if node.is_stream else node

    parts = _members(tree)
    nodes = context.each(member, parts)
    # INTERSECT ALL keeps what it has got, UNION ALL too; the others take back, or tell equal tuples once.
    if not (tree.all and tree.kind is not SetKind.EXCEPT) and any(reaches_internal(node) for node in nodes):
        refuse_internal(_word(tree), None, tree.operator_span, context)
    nodes = _alike(_word(tree), parts, nodes, context)
    if tree.kind is SetKind.EXCEPT:
        return Except(nodes[0], nodes[1], tree.all)
    if tree.kind is SetKind.INTERSECT:
        return Intersect(nodes[0], nodes[1], tree.all)
    return UnionAll(tuple(nodes)) if tree.all else Distinct(UnionAll(tuple(nodes)))


def _word(tree: SetQuery) -> str:
    return tree.kind.value + (" ALL" if tree.all else "")


def _members(tree: SetQuery) -> list[QueryTree]:
    """The operands of nested UNIONs of the same kind, left to right; of any other set operation its two."""
    if tree.kind is not SetKind.UNION:
        return [tree.left, tree.right]
    found: list[QueryTree] = []
    todo: list[QueryTree] = [tree]
    while todo:
        part = todo.pop()
        if isinstance(part, SetQuery) and part.kind is SetKind.UNION and part.all is tree.all:
            todo += [part.right, part.left]
        else:
            found.append(part)
    return found


def _alike(word: str, parts: list[QueryTree], nodes: list[Algebra], context: Context) -> list[Algebra]:
    """The members with casts to common types. Raises Refused after P0302 or P0305."""
    first = nodes[0]
    for part, node in zip(parts[1:], nodes[1:], strict=True):
        if len(node.schema) != len(first.schema):
            message = f"{word} of {len(first.schema)} and {counted(len(node.schema), 'column')}"
            context.fail("P0305", message, part.span)
        context.guard(part.span, lambda node=node: common_domain((first, node)))  # type: ignore[misc]
    types = [
        _common(word, [n.schema[i].type for n in nodes], i, parts[-1].span, context) for i in range(len(first.schema))
    ]
    return [_as_types(node, types) for node in nodes]


def _common(word: str, types: list[pa.DataType], column: int, span: Span, context: Context) -> pa.DataType:
    found = common_type(types)
    if found is None:
        shown = " and ".join(dict.fromkeys(type_name(t) for t in types))
        context.fail("P0305", f"column {column + 1} of {word} is {shown}", span, "CAST one of them")
    return found


def _as_types(node: Algebra, types: list[pa.DataType]) -> Algebra:
    if list(node.schema.types) == types:
        return node
    columns = [Column(f.type, i, f.name) for i, f in enumerate(node.schema)]
    expressions = tuple(cast_to(c, t) for c, t in zip(columns, types, strict=True))
    return Project(node, expressions, tuple(Field(f.name, t) for f, t in zip(node.schema, types, strict=True)))
