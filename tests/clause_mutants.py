"""Change scripts by grammar: a clause of a query is replaced by another clause of its kind, so that most changed
scripts bind, mean something else, and reach the planner.

Windows that name no columns come from the same script and from donors, which may be any scripts; predicates, select
items and join conditions come from queries of the same script, whose columns they name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.language.queries import (
    Item,
    JoinedSource,
    JoinKind,
    Name,
    NamedSource,
    QueryTree,
    SelectQuery,
    SetOperator,
    SetQuery,
    Star,
    StreamOperator,
    StreamQuery,
    ToStream,
    WindowClause,
)
from penstock.language.scripts import parse_script, print_statement
from penstock.language.statements import CreateQuery, CreateView, ExplainStatement, OneTimeSelect, Statement

Path = tuple[str | int, ...]
Change = Callable[[QueryTree, Sequence[QueryTree], Sequence[WindowClause], random.Random], QueryTree | None]

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul)
_NUMBERS = ("0", "1", "2", "3", "10", "1000", "2147483647")


def recombined(script: str, draw: random.Random, donors: Sequence[str] = ()) -> str | None:
    """Return `script` with one to three clauses changed; None where it defines no query or cannot be parsed."""
    statements = parsed(script)
    places = [i for i, s in enumerate(statements) if isinstance(s, CreateQuery | CreateView | OneTimeSelect)]
    if not places:
        return None
    changed = list(statements)
    queries = [
        s.query for s in statements if isinstance(s, CreateQuery | CreateView | OneTimeSelect | ExplainStatement)
    ]
    windows = [w for tree in (*queries, *(q for text in donors for q in _queries(text))) for w in _plain_windows(tree)]
    for _ in range(draw.choice((1, 1, 2, 3))):
        place = draw.choice(places)
        statement = changed[place]
        assert isinstance(statement, CreateQuery | CreateView | OneTimeSelect)
        if isinstance(statement, CreateQuery) and draw.random() < 0.1:
            changed[place : place + 1] = _through_a_view(statement, draw)
            places = [p if p <= place else p + 1 for p in places if p != place] + [place]
            continue
        tree = draw.choice(_CHANGES)(statement.query, queries, windows, draw)
        if tree is not None:
            changed[place] = replace(statement, query=tree)
    return "".join(f"{print_statement(statement)};\n" for statement in changed)


@cache
def parsed(script: str) -> tuple[Statement, ...]:
    """Return the statements of `script`; none where it cannot be parsed."""
    try:
        return parse_script(script).statements
    except PenstockError:
        return ()


def _queries(script: str) -> list[QueryTree]:
    return [s.query for s in parsed(script) if isinstance(s, CreateQuery | CreateView | OneTimeSelect)]


def _through_a_view(statement: CreateQuery, draw: random.Random) -> list[Statement]:
    name = Name(f"view_{draw.randrange(10**6)}")
    star = SelectQuery((Item(Star()),), NamedSource(name), distinct=draw.random() < 0.3)
    return [CreateView(name, (), statement.query), replace(statement, query=star)]


# --- places in trees --------------------------------------------------------------------------------------------------


def found(tree: object, kind: type | tuple[type, ...], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every part of a tree that is of `kind`, with its path."""
    if isinstance(tree, kind):
        yield path, tree
    for step, part in _parts(tree):
        yield from found(part, kind, (*path, step))


def _parts(tree: object) -> list[tuple[str | int, object]]:
    if isinstance(tree, tuple | list):
        return list(enumerate(tree))
    if isinstance(tree, exp.Expr):
        return list(tree.args.items())
    if is_dataclass(tree):
        return [(f.name, getattr(tree, f.name)) for f in fields(tree) if f.compare]
    return []


def put(tree: Any, path: Path, part: object) -> Any:
    """Return the tree with `part` at `path`."""
    if not path:
        return part.copy() if isinstance(part, exp.Expr) else part
    step, rest = path[0], path[1:]
    if isinstance(tree, exp.Expr):
        copy = tree.copy()
        copy.set(str(step), put(copy.args[step], rest, part))
        return copy
    if isinstance(tree, tuple | list):
        assert isinstance(step, int)
        items = list(tree)
        items[step] = put(items[step], rest, part)
        return type(tree)(items)
    return replace(tree, **{str(step): put(getattr(tree, str(step)), rest, part)})


def _exchanged(
    tree: QueryTree, kind: type | tuple[type, ...], other: Callable[[Any], object], draw: random.Random
) -> QueryTree | None:
    """Return the tree with one part of `kind` replaced by what `other` makes of it; None where it has no such part."""
    places = list(found(tree, kind))
    if not places:
        return None
    path, part = draw.choice(places)
    return put(tree, path, other(part))


def _plain_windows(tree: QueryTree) -> list[WindowClause]:
    """Return the windows that name no columns."""
    return [w for _, w in found(tree, WindowClause) if not w.partition and w.where is None and not w.lost]


def _selects(trees: Sequence[QueryTree]) -> list[SelectQuery]:
    return [select for tree in trees for _, select in found(tree, SelectQuery)]


def _alike(select: SelectQuery, selects: Sequence[SelectQuery]) -> list[SelectQuery]:
    """Return the queries that read the same sources under the same names."""
    return [other for other in selects if _sources(other) == _sources(select)]


def _sources(select: SelectQuery) -> list[tuple[str, str]]:
    named = [s for _, s in found(select.source, NamedSource)]
    return [(s.name.key, (s.alias or s.name).key) for s in named]


# --- changes ----------------------------------------------------------------------------------------------------------


def window(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    return _exchanged(tree, WindowClause, lambda _: draw.choice(windows), draw) if windows else None


def constant(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    texts = [literal.this for q in queries for _, literal in found(q, exp.Literal) if literal.is_string]

    def other(literal: exp.Literal) -> exp.Literal:
        if literal.is_string:
            return exp.Literal.string(draw.choice(texts))
        return exp.Literal.number(draw.choice(_NUMBERS))

    return _exchanged(tree, exp.Literal, other, draw)


def predicate(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    def other(select: SelectQuery) -> SelectQuery:
        others = [s.where for s in _alike(select, _selects(queries)) if s.where is not None]
        others += [exp.Not(this=exp.Paren(this=where.copy())) for where in others]
        if not others or draw.random() < 0.15:
            return replace(select, where=None)
        where = draw.choice(others).copy()
        if select.where is not None and draw.random() < 0.5:
            join = draw.choice((exp.And, exp.Or))
            where = join(this=exp.Paren(this=select.where.copy()), expression=exp.Paren(this=where))
        return replace(select, where=where)

    return _exchanged(tree, SelectQuery, other, draw)


def items(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    def other(select: SelectQuery) -> SelectQuery:
        own = list(select.items)
        more = [
            item for s in _alike(select, _selects(queries)) for item in s.items if bool(s.group) == bool(select.group)
        ]
        form = draw.randrange(3)
        if form == 0 and len(own) > 1:
            own.pop(draw.randrange(len(own)))
        elif form == 1:
            draw.shuffle(own)
        else:
            own.insert(draw.randrange(len(own) + 1), draw.choice(more or own))
        return replace(select, items=tuple(own))

    return _exchanged(tree, SelectQuery, other, draw)


def grouping(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    def other(select: SelectQuery) -> SelectQuery:
        if draw.random() < 0.5 or not select.having:
            return replace(select, distinct=not select.distinct)
        return replace(select, having=None)

    return _exchanged(tree, SelectQuery, other, draw)


def join(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    def other(source: JoinedSource) -> JoinedSource:
        conditions = [s.on for q in queries for _, s in found(q, JoinedSource) if s.on is not None]
        if source.kind is JoinKind.CROSS or (source.on is not None and draw.random() < 0.3):
            return replace(source, left=source.right, right=source.left)
        on = draw.choice(conditions) if source.on is not None and draw.random() < 0.2 else source.on
        return replace(source, on=on, kind=draw.choice([k for k in JoinKind if k is not JoinKind.CROSS]))

    return _exchanged(tree, JoinedSource, other, draw)


def set_operation(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    kind, every = draw.choice(list(SetOperator)), draw.random() < 0.5
    if draw.random() < 0.5 and any(True for _ in found(tree, SetQuery)):
        return _exchanged(tree, SetQuery, lambda s: replace(s, kind=kind, all=every), draw)
    other = draw.choice(queries) if draw.random() < 0.4 else tree
    if draw.random() < 0.5:  # of two versions of the query, so that rows differ
        other = constant(other, queries, windows, draw) or window(other, queries, windows, draw) or other
    return SetQuery(tree, other, kind, every)


def stream_operator(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    operator = draw.choice((StreamOperator.ISTREAM, StreamOperator.DSTREAM, StreamOperator.RSTREAM))
    if isinstance(tree, StreamQuery):
        inside = tree.operator.operator is not StreamOperator.WSTREAM
        return replace(tree, operator=ToStream(operator)) if inside and draw.random() < 0.7 else tree.query
    if any(o.operator is not StreamOperator.WSTREAM for _, o in found(tree, ToStream)):
        return _exchanged(tree, ToStream, lambda _: ToStream(operator), draw)
    return StreamQuery(ToStream(operator), tree)


def sign(
    tree: QueryTree, queries: Sequence[QueryTree], windows: Sequence[WindowClause], draw: random.Random
) -> QueryTree | None:
    """Exchange a comparison or an arithmetic operator for another one."""
    signs: tuple[type, ...] = draw.choice((_COMPARISONS, _COMPARISONS, _ARITHMETIC))

    def other(node: exp.Binary) -> exp.Binary:
        kind = draw.choice(signs)
        changed: exp.Binary = kind(this=node.this.copy(), expression=node.expression.copy())
        return changed

    return _exchanged(tree, signs, other, draw)


_CHANGES: tuple[Change, ...] = (
    window, window, window, constant, constant, predicate, predicate, items, items, grouping, join, join, set_operation,
    stream_operator, sign, sign,
)  # fmt: skip
