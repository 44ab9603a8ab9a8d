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
from penstock.errors import PenstockError

#: Characters of a script; its statements.
MAX_SCRIPT, MAX_STATEMENTS = 32_000_000, 20_000
#: Levels of nested brackets, queries, joins and calls.
MAX_DEPTH = 100
#: Columns of a declaration, of a select list, a GROUP BY or an ORDER BY; values in one list of an expression.
MAX_COLUMNS, MAX_VALUES = 2_000, 100_000
#: Streams and relations that one query reads once its views and correlated subqueries are expanded, counted each time
#: they are read; operators in a row.
MAX_SOURCES, MAX_OPERATORS = 250, 150

#: What a statement's tree may be deeper than its brackets are: a few levels are the statement's own.
_FRAME = 10

TOO_DEEP = f"this is nested too deeply: {MAX_DEPTH} levels are the limit, fewer where each holds much"

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
#: Signs before a value; in a row, each is a level of its own.
_PREFIX = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE)


def too_deep(tokens: Sequence[Token], levels: int | None = None) -> Token | None:
    """The first token of a statement that stands deeper than `levels` (the limit where there are none given), in
    brackets, CASE and signs in a row. This is measured before anything is parsed, so that it never depends on the
    stack."""
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
    and counts as one level.
    """
    stack: list[tuple[object, int]] = [(statement, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH + _FRAME:
            return TOO_DEEP
        if isinstance(node, list):
            if len(node) > MAX_VALUES:
                return f"this list holds {len(node):,} values, {MAX_VALUES:,} are the limit"
            stack.extend((part, depth) for part in node)
        elif isinstance(node, tuple):
            stack.extend((part, depth) for part in node)
        elif isinstance(node, exp.Expr):
            stack.extend((v, depth + (not isinstance(node, exp.Or | exp.And))) for v in node.args.values())
        elif is_dataclass(node):
            for name in (f.name for f in fields(node) if f.compare):
                part = getattr(node, name)
                if name in _LISTS and isinstance(part, tuple) and len(part) > MAX_COLUMNS:
                    return f"these are {len(part):,} {_LISTS[name]}, {MAX_COLUMNS:,} are the limit"
                stack.append((part, depth + 1))
    return None


#: Fields of trees that hold columns, and their name in messages.
_LISTS = {"columns": "columns", "items": "items", "group": "groups", "order": "sort keys", "using": "columns"}


def check_size(root: Algebra) -> None:
    """Raise PenstockError P0105 for a query that reads too much, directly or through views."""
    sizes: dict[int, tuple[int, int]] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [child for child in node.inputs if id(child) not in sizes]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        below = [sizes[id(child)] for child in node.inputs]
        reads = sum(count for count, _ in below) + isinstance(node, Scan)
        sizes[id(node)] = reads, 1 + max((depth for _, depth in below), default=0)
    reads, depth = sizes[id(root)]
    hint = "divide it into several queries, of which one reads what another has written"
    if reads > MAX_SOURCES:
        message = f"with views and correlated subqueries expanded, this query reads {reads:,} streams and relations, "
        message += f"{MAX_SOURCES:,} are the limit"
        raise PenstockError("P0105", message, hint=hint)
    if depth > MAX_OPERATORS:
        message = f"this query has {depth:,} operators one above the other, {MAX_OPERATORS:,} are the limit"
        raise PenstockError("P0105", message, hint=hint)
