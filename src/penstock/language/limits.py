"""Maximum sizes of scripts, statements and queries (P0105): each limit is far above what people write, and below it
every script is parsed, bound and planned in seconds. `docs/language/scripts.md` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.algebra import Algebra
from penstock.algebra.nodes.base import StreamToRelation
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.nodes.set_operations import UnionAll
from penstock.errors import PenstockError
from penstock.language.queries import QueryTree, SelectQuery, SetOperator, SetQuery, ValuesQuery
from penstock.language.text import LEAVES, fields_compared
from penstock.tree import derived

#: Characters of a script; its statements.
MAX_SCRIPT, MAX_STATEMENTS = 32_000_000, 20_000
#: Characters of a name: of a declaration, a column, an alias.
MAX_NAME = 1_000
#: Levels of nested brackets, queries, joins and calls.
MAX_DEPTH = 100
#: Columns of a declaration, of a select list, a GROUP BY or an ORDER BY; values in one list of an expression.
MAX_COLUMNS, MAX_VALUES = 2_000, 100_000
#: Streams and relations that one query reads once its views and correlated subqueries are expanded: of a UNION ALL
#: those of its largest member, and those of all members; operators in a row.
MAX_SOURCES, MAX_MEMBERS, MAX_OPERATORS = 250, 2_500, 1_000
#: The same, where each of the equal parts of a query is counted, though the plan computes them once.
MAX_REPEATED = 25_000

#: Levels of a query's tree in addition to those of its brackets. Levels of a statement's tree with all queries in it,
#: each of which begins anew.
_FRAME, _TREE = 10, 1_500

TOO_DEEP = f"this is nested too deeply: the limit is {MAX_DEPTH} levels, fewer where each is large"

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END)
#: Signs before a value; in a sequence, each is a level of its own.
_PREFIX = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE)


def too_many(statements: int, most: int) -> str:
    """Return the message for a script of too many statements. most: the limit."""
    return f"this script has {statements:,} statements, {most:,} are the limit"


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
        if type(node) in LEAVES:
            continue
        if isinstance(node, list):
            if len(node) > MAX_VALUES:
                return f"this list holds {len(node):,} values, {MAX_VALUES:,} are the limit"
            stack.extend((part, depth, whole) for part in node)
        elif isinstance(node, tuple):
            stack.extend((part, depth, whole) for part in node)
        elif isinstance(node, ValuesQuery) and len(node.rows) > MAX_VALUES:
            return f"these are {len(node.rows):,} rows of VALUES, {MAX_VALUES:,} are the limit"
        elif isinstance(node, ValuesQuery) and len(node.rows[0]) > MAX_COLUMNS:
            return f"these are {len(node.rows[0]):,} columns, {MAX_COLUMNS:,} are the limit"
        elif isinstance(node, SelectQuery) and depth:
            stack.append((node, 0, whole + 1))
        elif isinstance(node, SetQuery) and continues(node.left, node):
            stack += [(node.left, depth, whole), (node.right, depth + 1, whole + 1)]
        elif isinstance(node, exp.Expr):
            deeper = not isinstance(node, exp.Or | exp.And)
            stack.extend((part, depth + deeper, whole + deeper) for part in node.args.values())
        elif (names := fields_compared(type(node))) is not None:
            for name in names:
                part = getattr(node, name)
                if name in _LISTS and isinstance(part, tuple) and len(part) > MAX_COLUMNS:
                    return f"these are {len(part):,} {_LISTS[name]}, {MAX_COLUMNS:,} are the limit"
                stack.append((part, depth + 1, whole + 1))
    return None


def continues(member: QueryTree, union: SetQuery) -> bool:
    """Whether `member` is a UNION whose members are those of `union` too."""
    return isinstance(member, SetQuery) and (
        (member.kind, member.all, member.by_name) == (SetOperator.UNION, union.all, union.by_name)
        and union.kind is SetOperator.UNION
    )


#: Fields of trees that hold columns, and their name in messages.
_LISTS = {"columns": "columns", "items": "items", "group": "groups", "order": "sort keys", "using": "columns"}


def check_size(root: Algebra) -> None:
    """Raise PenstockError P0105 for a query that reads too much, directly or through views.

    Equal subplans are planned and computed once, so what they read counts once; as often as they occur where joins may
    be merged into one join of all their inputs (`_MERGED`), each input of which is planned by itself.
    """
    size = _whole_size(root)
    hint = "divide it into several queries, of which one reads the result of another"
    for count, limit in ((size.reads, MAX_SOURCES), (size.members, MAX_MEMBERS), (size.repeated, MAX_REPEATED)):
        if count > limit:
            message = (
                f"with views and correlated subqueries expanded, this query reads {count:,} streams and relations, "
            )
            message += f"{limit:,} are the limit"
            raise PenstockError("P0105", message, hint=hint)
    if size.depth > MAX_OPERATORS:
        message = f"this query has {size.depth:,} operators on top of each other, {MAX_OPERATORS:,} are the limit"
        raise PenstockError("P0105", message, hint=hint)


@dataclass(frozen=True)
class _Size:
    """The size of a subplan. reads, members: streams and relations that it reads, of a UNION ALL in its largest member
    and in all; again: its reads, members where it occurs another time; repeated: reads with all repetitions."""

    reads: int
    members: int
    again: tuple[int, int]
    repeated: int
    depth: int


def _whole_size(root: Algebra) -> _Size:
    """Return the size of `root` as a whole query, recorded in it: operators upon a view add to what the view has."""
    upon: list[Algebra] = []
    node = root
    while not _query_size.is_known(node) and len(node.inputs) == 1:
        upon.append(node)
        (node,) = node.inputs
    # Inputs first, so that a deep plan needs no deep stack.
    for above in reversed(upon):
        _query_size(above)
    return _query_size(root)


@derived
def _query_size(root: Algebra) -> _Size:
    """Return the size of `root` as a whole query, computed once."""
    if len(root.inputs) == 1:
        (below,) = root.inputs
        return _size(root, {below.fingerprint: _query_size(below)}, set())
    return _measured(root)


def _measured(root: Algebra) -> _Size:
    """Return the size of `root` as a whole query, by visiting everything below it."""
    sizes: dict[str, _Size] = {}
    counted: set[str] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [child for child in node.inputs if child.fingerprint not in sizes]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if node.fingerprint not in sizes:
            sizes[node.fingerprint] = _size(node, sizes, counted)
    return sizes[root.fingerprint]


#: Operators that may become part of one join of many inputs, so that these are there as often as they are read.
_MERGED = (Join, Project, Select, UnionAll, StreamToRelation, Scan)


def _size(node: Algebra, sizes: Mapping[str, _Size], counted: set[str]) -> _Size:
    """Return the size of `node` over inputs of known `sizes`; counted: the inputs that other nodes have counted."""
    own = bool(node.source_names) and not node.inputs
    most = max if isinstance(node, UnionAll) else sum
    reads, members = [0], [0]
    for child in node.inputs:
        size = sizes[child.fingerprint]
        first = child.fingerprint not in counted
        counted.add(child.fingerprint)
        reads.append(size.reads if first else size.again[0])
        members.append(size.members if first else size.again[1])
    below = [sizes[child.fingerprint] for child in node.inputs]
    again = 0, 0
    if isinstance(node, _MERGED):
        again = most([0, *(size.again[0] for size in below)]) + own, sum(size.again[1] for size in below) + own
    repeated = most([0, *(size.repeated for size in below)]) + own
    depth = 1 + max((size.depth for size in below), default=0)
    return _Size(most(reads) + own, sum(members) + own, again, repeated, depth)
