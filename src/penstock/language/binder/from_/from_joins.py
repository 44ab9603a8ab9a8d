"""JOIN in a FROM clause: inner joins stay flat, an outer or semi-join makes one relation of its two sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.algebra import Algebra, OuterKind, Project, SemiKind
from penstock.algebra.nodes.base import common_domain
from penstock.expressions.calls.functions import build_call
from penstock.expressions.nodes import Expression, conjunction, conjuncts, remap
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.from_.lateral import come_nearer, joined_beside, rows_beside
from penstock.language.binder.inputs.inputs import FromInput, Inputs
from penstock.language.binder.inputs.joins import build_joins, outer_join, semi_join
from penstock.language.binder.inputs.keyed import columns
from penstock.language.binder.inputs.promised import outer_by_promises
from penstock.language.binder.placeholders import attached_in
from penstock.language.binder.rows import Inner
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Role, Scope
from penstock.language.binder.subqueries.on_subqueries import joined_by_pairs, picked_pairs
from penstock.language.binder.subqueries.unplacing import ClauseSubqueries
from penstock.language.queries import JoinedSource, JoinKind, Name
from penstock.language.text import TextSpan
from penstock.types import Field

_FLAT = (JoinKind.INNER, JoinKind.CROSS)
_SEMI = {JoinKind.SEMI: SemiKind.SEMI, JoinKind.ANTI: SemiKind.ANTI}


@dataclass(frozen=True)
class Around:
    """The context of a FROM clause. outer, enclosing: as in `Scope`; subqueries: returns a collector for ON."""

    outer: tuple[Entry, ...]
    enclosing: tuple[tuple[Entry, ...], ...]
    subqueries: Callable[[Scope], ClauseSubqueries]


def join_sources(join: JoinedSource, left: Inputs, right: Inputs, around: Around, context: Context) -> Inputs:
    """Return both sides of `join` as one input, marked as failed, with errors recorded, where they or its conditions
    cannot be bound.
    """
    rows = rows_beside(right, context)
    right = come_nearer(right) if rows is None else replace(right, entries=_untimed(right.entries))
    width = left.width
    others = tuple(replace(e, index=e.index + width) for e in right.entries)
    moved = tuple(remap(c, lambda i: i + width) for c in right.conditions)
    failed = left.failed or right.failed
    both = Inputs(left.members + right.members, left.entries + others, left.conditions + moved, failed)
    joined = context.attempt(lambda: _joined(join, left, right, rows, both, others, around, context))
    return joined or replace(both, members=(), conditions=(), failed=True)


def _joined(
    join: JoinedSource,
    left: Inputs,
    right: Inputs,
    rows: Inner | None,
    both: Inputs,
    others: tuple[Entry, ...],
    around: Around,
    context: Context,
) -> Inputs:
    names = _common_names(left.entries, others) if join.natural is not None else join.using
    pairs = _using(names, left.entries, others, context)
    conditions = tuple(
        ExpressionBinder(Scope(both.entries), context).call("EQ", exp.Null(), [a.column(), b.column()], name.span)
        for (a, b), name in zip(pairs, names, strict=True)
    )
    scope = Scope(both.entries, around.outer, around.enclosing)
    subqueries = around.subqueries(scope)
    if join.on is not None:
        conditions += (ExpressionBinder(scope, context, "ON", subqueries=subqueries).predicate(join.on, "ON"),)
    if both.failed:
        raise BindingFailed
    parts = tuple(part for condition in conditions for part in conjuncts(condition))
    if rows is not None:
        joined = joined_beside(join, left, rows, [e.name for e in others], parts, subqueries)
        entries = left.entries if join.kind in _SEMI else _merged(both.entries, pairs)
        return Inputs((FromInput(joined, join.span),), entries)
    asking = any(attached_in(part) for part in parts)
    if join.kind in _FLAT and asking:
        plain = conjunction(tuple(part for part in parts if not attached_in(part)))
        joined = picked_pairs(build_joins(both, plain, context), [p for p in parts if attached_in(p)], subqueries)
        return Inputs((FromInput(joined, join.span, _internal(both)),), both.entries)
    if join.kind in _FLAT:
        return Inputs(both.members, _merged(both.entries, pairs), both.conditions + conditions)
    left_node, right_node = build_joins(left, None, context), build_joins(right, None, context)
    context.guard(join.right.span, lambda: common_domain((left_node, right_node)))
    internal = _internal(both)
    if join.kind in _SEMI:
        if asking:
            joined = joined_by_pairs(join.kind, left_node, right_node, parts, subqueries, join.span)
        else:
            joined = outer_by_promises(semi_join(left_node, right_node, parts, _SEMI[join.kind]))
        return Inputs((FromInput(joined, join.span, internal),), left.entries)
    padded = {JoinKind.LEFT: others, JoinKind.RIGHT: left.entries}.get(join.kind, both.entries)
    entries = tuple(_untimed((e,))[0] if e in padded else e for e in both.entries)
    kept = {e.index: e for e in entries}
    pairs = [(kept[a.index], kept[b.index]) for a, b in pairs]
    if asking:
        joined = joined_by_pairs(join.kind, left_node, right_node, parts, subqueries, join.span)
        return Inputs((FromInput(joined, join.span, internal),), entries)
    outer = _outer(join, left_node, right_node, parts, entries, pairs)
    return replace(outer, members=tuple(replace(m, internal=internal) for m in outer.members))


def _untimed(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return columns of tuples that may be padded or computed: without a timestamp by which FIRST and LAST could order
    them.
    """
    return tuple(replace(e, role=Role.RELATION) for e in entries)


def _internal(inputs: Inputs) -> TextSpan | None:
    return next((member.internal for member in inputs.members if member.internal is not None), None)


def _outer(
    join: JoinedSource,
    left: Algebra,
    right: Algebra,
    parts: tuple[Expression, ...],
    entries: tuple[Entry, ...],
    pairs: list[tuple[Entry, Entry]],
) -> Inputs:
    node: Algebra
    if join.kind is JoinKind.RIGHT:
        width, others = len(left.schema), len(right.schema)
        swapped = tuple(remap(p, lambda i: i + others if i < width else i - width) for p in parts)
        node = outer_by_promises(outer_join(right, left, swapped, OuterKind.LEFT))
        swapped_columns = [*range(others, others + width), *range(others)]
        node = Project(node, columns(node, swapped_columns), tuple(node.schema[i] for i in swapped_columns))
        pairs = [(b, a) for a, b in pairs]
    else:
        node = outer_by_promises(outer_join(left, right, parts, OuterKind[join.kind.name]))
    if join.kind is JoinKind.FULL and pairs:
        return _coalesced(join, node, entries, pairs)
    return Inputs((FromInput(node, join.span),), _merged(entries, pairs))


def _coalesced(
    join: JoinedSource, node: Algebra, entries: tuple[Entry, ...], pairs: list[tuple[Entry, Entry]]
) -> Inputs:
    """Return the inputs of FULL JOIN USING: the column takes the value of the side that has one."""
    width = len(node.schema)
    values = tuple(_either(a.column(), b.column()) for a, b in pairs)
    fields = tuple(Field(a.name, v.type) for (a, _), v in zip(pairs, values, strict=True))
    coalesced = Project(node, (*columns(node, range(width)), *values), node.schema.fields + fields)
    fresh = tuple(Entry(width + i, f.name, f.type) for i, f in enumerate(fields))
    hidden = {e for pair in pairs for e in pair}
    other_entries = tuple(replace(e, merged=True) if e in hidden else e for e in entries)
    return Inputs((FromInput(coalesced, join.span),), fresh + other_entries)


def _either(first: Expression, second: Expression) -> Expression:
    return build_call("COALESCE", (first, second))


def _common_names(left: Sequence[Entry], right: Sequence[Entry]) -> tuple[Name, ...]:
    """Return the columns of a NATURAL join: those that both sides have, in the order of the left."""
    names = [e.name for e in left if e.named and not e.merged]
    known = {e.name.lower() for e in right if e.named and not e.merged}
    return tuple(Name(n) for n in dict.fromkeys(names) if n.lower() in known)


def _using(
    names: Sequence[Name], left: tuple[Entry, ...], right: tuple[Entry, ...], context: Context
) -> list[tuple[Entry, Entry]]:
    def resolved(name: Name, side: tuple[Entry, ...], where: str, other: tuple[Entry, ...]) -> Entry:
        scope = Scope(side)
        if not scope.knows(name) and Scope(other).knows(name):
            both = ", ".join(one.text for one in _common_names(left, right))
            hint = f"on both sides: {both}" if both else "ON a.k = b.l compares columns of different names"
            message = f"USING takes columns of both sides, and what is {where} of JOIN has no {name.text}"
            context.fail("P0202", message, name.span, hint)
        return scope.resolve(name, None, context)

    left_entries = context.attempt(lambda: context.each(lambda n: resolved(n, left, "to the left", right), names))
    right_entries = context.each(lambda n: resolved(n, right, "to the right", left), names)
    if left_entries is None:
        raise BindingFailed
    return list(zip(left_entries, right_entries, strict=True))


def _merged(entries: tuple[Entry, ...], pairs: list[tuple[Entry, Entry]]) -> tuple[Entry, ...]:
    """Return the entries of a join with USING: the first column of each pair precedes all others, the second is visible
    by its qualified name only.
    """
    shown, hidden = [a for a, _ in pairs], [b for _, b in pairs]
    unshared = [replace(e, merged=True) if e in hidden else e for e in entries if e not in shown]
    return (*shown, *unshared)
