"""Session windows as Spark and Flink write them, read as `[PARTITION BY .. SESSION gap]` (docs/recipes.md).

Spark: `GROUP BY usr, session_window(at, '5 minutes')`, with `session_window.start` and `.end`. Flink: `FROM
TABLE(SESSION(TABLE clicks PARTITION BY usr, DESCRIPTOR(at), INTERVAL '5' MINUTES))`, with `window_start` and
`window_end`. The bounds become BEGIN and END of the period of the session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.language.dialect import span_of, token_span
from penstock.language.grammar.samples import SampleGrammar
from penstock.language.queries import (
    Duration,
    Extent,
    Item,
    Name,
    NamedSource,
    OrderItem,
    QueryTree,
    SelectQuery,
    WindowClause,
)
from penstock.language.text import TextSpan
from penstock.types import Interval

_WINDOW = "session_window"
_WRITTEN = "[PARTITION BY usr SESSION 5 MINUTES] behind a stream is its window of sessions"

#: Returns what stands for an expression, None for itself.
Reading = Callable[[exp.Expr], exp.Expr | None]


class SessionGrammar(SampleGrammar):
    """Parser of both forms."""

    # --- Flink

    def _session_table(self) -> NamedSource | None:
        """Parse `TABLE(SESSION(TABLE s [PARTITION BY c, ..], DESCRIPTOR(at), gap))` with its alias; None for another
        source."""
        if not self._match_text_seq("TABLE", "(", "SESSION", "(", advance=False):
            return None
        start = self._here()
        self._advance(4)
        self._need("TABLE")
        name = self._source_name("a stream")
        partition: tuple[exp.Expr, ...] = ()
        if self._match(TokenType.PARTITION_BY):
            bracketed = self._match(TokenType.L_PAREN)
            partition = self._partition_columns(bool(bracketed))
        self._need_token(TokenType.COMMA, ",")
        self._need("DESCRIPTOR")
        self._need_token(TokenType.L_PAREN, "(")
        at = self._name("a column name")
        self._need_token(TokenType.R_PAREN, ")")
        self._need_token(TokenType.COMMA, ",")
        gap = self._duration()
        self._need_token(TokenType.R_PAREN, ")")
        self._need_token(TokenType.R_PAREN, ")")
        window = WindowClause(Extent.SESSION, gap, partition, time=at, span=self._since(start))
        return NamedSource(name, window, None, self._alias(), span=self._since(start))

    def _partition_columns(self, bracketed: bool) -> tuple[exp.Expr, ...]:
        """Parse columns up to the comma before DESCRIPTOR, or to the closing bracket."""
        found = [self._required(self._parse_column())]
        while self._curr.token_type is TokenType.COMMA and not (self._next and self._next.text.upper() == "DESCRIPTOR"):
            self._advance()
            found.append(self._required(self._parse_column()))
        if bracketed:
            self._need_token(TokenType.R_PAREN, ")")
        return tuple(found)

    # --- both

    def _with_sessions(self, query: SelectQuery) -> SelectQuery:
        """Return a query with its session window behind its stream, and its bounds as those of the period."""
        source = query.source
        calls = [key for key in query.group if _is_call(key)]
        if calls:
            query = self._grouped_by(query, calls[0])
            return _read(query, _spark_reading(query, calls[0]), ("start", "end"))
        if isinstance(source, NamedSource) and source.window is not None and source.window.time is not None:
            return _read(query, _flink_reading(query), ("window_start", "window_end"))
        return query

    def _order_of_sessions(self, tree: QueryTree, order: tuple[OrderItem, ...]) -> tuple[OrderItem, ...]:
        """Return the sort keys of a query, with the bounds of its session window as those of the period."""
        of_sessions = (
            isinstance(tree, SelectQuery)
            and isinstance(tree.source, NamedSource)
            and tree.source.window is not None
            and tree.source.window.time is not None
        )
        if not of_sessions or not isinstance(tree, SelectQuery):
            return order
        readings = (_spark_reading(tree, None), _flink_reading(tree))

        def read(part: exp.Expr) -> exp.Expr:
            return next((found for reading in readings if (found := reading(part)) is not None), part)

        return tuple(replace(key, value=key.value.transform(read)) for key in order)

    def _grouped_by(self, query: SelectQuery, call: exp.Expr) -> SelectQuery:
        """Return a query whose grouping by `call` is the window of its stream."""
        source = query.source
        span = span_of(call)
        if not isinstance(source, NamedSource) or source.window is not None or source.items is not None:
            self._misfit("session_window groups one stream that has no other window", span)
        arguments = call.expressions
        if len(arguments) != 2 or not isinstance(arguments[0], exp.Column):
            self._misfit("session_window takes the timestamp of the stream and the gap", span)
        keys = tuple(key for key in query.group if key is not call)
        for key in keys:
            if not isinstance(key, exp.Column):
                self._misfit("beside session_window GROUP BY takes columns", span_of(key))
        column = arguments[0]
        at = Name(column.name, column.this.quoted, span_of(column))
        window = WindowClause(Extent.SESSION, self._gap(arguments[1]), keys, time=at, span=span)
        return replace(query, source=replace(source, window=window))

    def _gap(self, written: exp.Expr) -> Duration:
        text = written.this if isinstance(written, exp.Literal) and written.is_string else None
        found = None if text is None else Interval.parse(text)
        if found is None:
            hint = "as in '5 minutes'; [PARTITION BY usr SESSION wait SECONDS] computes it of the row"
            self._reject("the gap of session_window is a text", self._token_at(span_of(written)), "P0375", hint)
        return Duration(found, span_of(written))

    def _misfit(self, message: str, span: TextSpan) -> NoReturn:
        self._reject(message, self._token_at(span), "P0375", _WRITTEN)

    def _token_at(self, span: TextSpan) -> Token | None:
        return next((token for token in self._tokens if token_span(token).start >= span.start), None)


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == _WINDOW


def _spark_reading(query: SelectQuery, call: exp.Expr | None) -> Reading:
    """Return the reading of `session_window.start` and the like, and of the call itself; call: None for any."""
    bounds = {"start": "BEGIN", "end": "END"}

    def reading(node: exp.Expr) -> exp.Expr | None:
        if isinstance(node, exp.Column) and node.table.lower() == _WINDOW and node.name.lower() in bounds:
            return _bound(query, bounds[node.name.lower()], node)
        whole = isinstance(node, exp.Column) and not node.table and node.name.lower() == _WINDOW
        called = _is_call(node) if call is None else node == call
        return _period(query, node) if whole or called else None

    return reading


def _flink_reading(query: SelectQuery) -> Reading:
    bounds = {"window_start": "BEGIN", "window_end": "END"}

    def reading(node: exp.Expr) -> exp.Expr | None:
        if isinstance(node, exp.Column) and node.name.lower() in bounds:
            return _bound(query, bounds[node.name.lower()], node)
        return None

    return reading


def _period(query: SelectQuery, at: exp.Expr) -> exp.Expr:
    assert isinstance(query.source, NamedSource)
    name = query.source.alias or query.source.name
    column = exp.Column(this=exp.Identifier(this=name.text, quoted=name.quoted))
    return _called("VALID", column, at)


def _bound(query: SelectQuery, name: str, at: exp.Expr) -> exp.Expr:
    return _called(name, _period(query, at), at)


def _called(name: str, argument: exp.Expr, at: exp.Expr) -> exp.Expr:
    call = exp.Anonymous(this=name, expressions=[argument])
    for node in (call, *argument.find_all(exp.Expression)):
        node.meta.setdefault("span", span_of(at))
    return call


def _read(query: SelectQuery, reading: Reading, names: tuple[str, ...]) -> SelectQuery:
    """Return a query with what `reading` says in place of parts of it; an item called one of `names` keeps its name."""

    def read(node: exp.Expr) -> exp.Expr:
        return node.transform(lambda part: reading(part) or part)

    def item(one: Item) -> Item:
        if not isinstance(one.value, exp.Expression):
            return one
        named = isinstance(one.value, exp.Column) and one.value.name.lower() in (*names, _WINDOW)
        alias = Name(one.value.name, False, one.span) if one.alias is None and named else one.alias
        return replace(one, value=read(one.value), alias=alias if reading(one.value) is not None else one.alias)

    return replace(
        query, items=tuple(map(item, query.items)), group=tuple(map(read, query.group)),
        where=None if query.where is None else read(query.where),
        having=None if query.having is None else read(query.having),
    )  # fmt: skip
