"""Maximum sizes of scripts, statements and queries (P0105): each limit is far above what people write, and below it
every script is parsed, bound and planned in seconds. `docs/language.md` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.algebra import Algebra
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.nodes.set_operations import UnionAll
from penstock.errors import PenstockError
from penstock.language.queries import QueryTree, SelectQuery, SetOperator, SetQuery

#: Characters of a script; its statements.
MAX_SCRIPT, MAX_STATEMENTS = 32_000_000, 20_000
#: Levels of nested brackets, queries, joins and calls.
MAX_DEPTH = 100
#: Columns of a declaration, of a select list, a GROUP BY or an ORDER BY; values in one list of an expression.
MAX_COLUMNS, MAX_VALUES = 2_000, 100_000
#: Streams and relations that one query reads once its views and correlated subqueries are expanded, counted each time
#: they are read: of a UNION ALL those of its largest member, and those of all members; operators in a row.
MAX_SOURCES, MAX_MEMBERS, MAX_OPERATORS = 250, 2_500, 1_000

#: Levels of a query's tree in addition to those of its brackets. Levels of a statement's tree with all queries in it,
#: each of which begins anew.
_FRAME, _TREE = 10, 1_500

TOO_DEEP = f"this is nested too deeply: the limit is {MAX_DEPTH} levels, fewer where each is large"

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
#: Signs before a value; in a sequence, each is a level of its own.
_PREFIX = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE)


def too_deep(tokens: Sequence[Token], levels: int | None = None) -> Token | None:
    """Return the first token of a statement that stands deeper than `levels` (the limit where there are none given), in
    brackets, CASE and signs in a row. This is measured before anything is parsed, so that it never depends on the
    stack.
    """
    depth = signs = 0
    most = MAX_DEPTH if levels is None else levels
    for token in tokens:
        kind = token.token_type
        signs = signs + 1 if kind in _PREFIX else 0
        if kind in _OPEN:
            depth += 1
        elif kind in _CLOSE:
            depth = max(depth - 1, 0)
        if depth + signs > most:
            return token
    return None


def beyond_limits(statement: object) -> str | None:
    """Return what in a statement exceeds a limit, as a message. A chain of ANDs or ORs is balanced when it is bound,
    one of UNION ALL (or of UNION) is one operator: each counts as one level. A query in another counts its own levels.
    """
    stack: list[tuple[object, int, int]] = [(statement, 0, 0)]
    while stack:
        node, depth, whole = stack.pop()
        if depth > MAX_DEPTH + _FRAME or whole > _TREE:
            return TOO_DEEP
        if isinstance(node, list):
            if len(node) > MAX_VALUES:
                return f"this list holds {len(node):,} values, {MAX_VALUES:,} are the limit"
            stack.extend((part, depth, whole) for part in node)
        elif isinstance(node, tuple):
            stack.extend((part, depth, whole) for part in node)
        elif isinstance(node, SelectQuery) and depth:
            stack.append((node, 0, whole + 1))
        elif isinstance(node, SetQuery) and continues(node.left, node):
            stack += [(node.left, depth, whole), (node.right, depth + 1, whole + 1)]
        elif isinstance(node, exp.Expr):
            deeper = not isinstance(node, exp.Or | exp.And)
            stack.extend((part, depth + deeper, whole + deeper) for part in node.args.values())
        elif is_dataclass(node):
            for name in (f.name for f in fields(node) if f.compare):
                part = getattr(node, name)
                if name in _LISTS and isinstance(part, tuple) and len(part) > MAX_COLUMNS:
                    return f"these are {len(part):,} {_LISTS[name]}, {MAX_COLUMNS:,} are the limit"
                stack.append((part, depth + 1, whole + 1))
    return None


def continues(member: QueryTree, union: SetQuery) -> bool:
    """Whether `member` is a UNION whose members are those of `union` too."""
    return isinstance(member, SetQuery) and union.kind is SetOperator.UNION is member.kind and member.all is union.all


#: Fields of trees that hold columns, and their name in messages.
_LISTS = {"columns": "columns", "items": "items", "group": "groups", "order": "sort keys", "using": "columns"}


def check_size(root: Algebra) -> None:
    """Raise PenstockError P0105 for a query that reads too much, directly or through views."""
    sizes: dict[int, tuple[int, int, int]] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [child for child in node.inputs if id(child) not in sizes]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        below = [sizes[id(child)] for child in node.inputs]
        counts = [count for count, _, _ in below]
        reads = (max(counts) if isinstance(node, UnionAll) else sum(counts)) + isinstance(node, Scan)
        members = sum(count for _, count, _ in below) + isinstance(node, Scan)
        sizes[id(node)] = reads, members, 1 + max((depth for _, _, depth in below), default=0)
    reads, members, depth = sizes[id(root)]
    hint = "divide it into several queries, of which one reads the result of another"
    for count, limit in ((reads, MAX_SOURCES), (members, MAX_MEMBERS)):
        if count > limit:
            message = (
                f"with views and correlated subqueries expanded, this query reads {count:,} streams and relations, "
            )
            message += f"{limit:,} are the limit"
            raise PenstockError("P0105", message, hint=hint)
    if depth > MAX_OPERATORS:
        message = f"this query has {depth:,} operators on top of each other, {MAX_OPERATORS:,} are the limit"
        raise PenstockError("P0105", message, hint=hint)
