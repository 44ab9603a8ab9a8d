"""Session windows as Spark and Flink write them, read as `[PARTITION BY .. SESSION gap]` (docs/recipes.md).

Spark: `GROUP BY usr, session_window(at, '5 minutes')`, with `session_window.start` and `.end`. Flink: `FROM
TABLE(SESSION(TABLE clicks PARTITION BY usr, DESCRIPTOR(at), INTERVAL '5' MINUTES))`, with `window_start` and
`window_end`. The bounds become BEGIN and END of the period of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.language.dialect import span_of, token_span
from penstock.language.grammar.samples import SampleGrammar
from penstock.language.grammar.session_gaps import gap_of
from penstock.language.queries import (
    Duration,
    Extent,
    FromSource,
    Item,
    JoinedSource,
    Length,
    Name,
    NamedSource,
    OrderItem,
    QueryTree,
    SelectQuery,
    WindowClause,
)
from penstock.language.text import TextSpan

_WINDOW = "session_window"
#: The columns of Flink's table function, and the functions of the period that they are. `window_time` is the last
#: instant of the session, as Spark's `window_time(session_window)`.
_FLINK_BOUNDS = {"window_start": "BEGIN", "window_end": "END", "window_time": "WINDOW_TIME"}
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
        tables = _session_tables(source)
        if not tables:
            return query
        reading = self._flink_reading(tables)
        read = _read(query, reading, _FLINK_BOUNDS)
        return replace(read, source=_conditions_read(source, reading)) if isinstance(source, JoinedSource) else read

    def _order_of_sessions(self, tree: QueryTree, order: tuple[OrderItem, ...]) -> tuple[OrderItem, ...]:
        """Return the sort keys of a query, with the bounds of its session window as those of the period."""
        tables = _session_tables(tree.source) if isinstance(tree, SelectQuery) else []
        if not tables:
            return order
        readings = [self._flink_reading(tables)]
        if isinstance(tree, SelectQuery) and isinstance(tree.source, NamedSource):
            readings.append(_spark_reading(tree, None))

        def read(part: exp.Expr) -> exp.Expr:
            return next((found for reading in readings if (found := reading(part)) is not None), part)

        return tuple(replace(key, value=key.value.transform(read)) for key in order)

    def _grouped_by(self, query: SelectQuery, call: exp.Expr) -> SelectQuery:
        """Return a query whose grouping by `call` is the window of its stream."""
        source = query.source
        span = span_of(call)
        if isinstance(source, JoinedSource):
            hint = (
                "name the join: WITH j AS (ISTREAM(SELECT ..)) SELECT .. FROM j [PARTITION BY usr SESSION 5 MINUTES] AS"
                " c; its elements arrive when the later row of each pair does"
            )
            message = "session_window over a join: sessions are of one stream"
            self._reject(message, self._token_at(span), "P0375", hint)
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

    def _gap(self, written: exp.Expr) -> Duration | Length:
        found = gap_of(written)
        if found is None:
            hint = (
                "as in '5 minutes', or CASE .. THEN '5 minutes' .. END; [PARTITION BY usr SESSION wait SECONDS] counts"
            )
            message = "the gap of session_window is a text, an INTERVAL, or chosen among such"
            self._reject(message, self._token_at(span_of(written)), "P0375", hint)
        return found

    def _flink_reading(self, tables: list[NamedSource]) -> Reading:
        """Return the reading of `window_start` and the like of these sources, with their alias or without."""

        def reading(node: exp.Expr) -> exp.Expr | None:
            if not isinstance(node, exp.Column) or node.name.lower() not in _FLINK_BOUNDS:
                return None
            of = [one for one in tables if not node.table or _written(node.args["table"]).matches(_alias(one).text)]
            if len(of) > 1:
                aliases = " or ".join(f"{_alias(one).text}.{node.name}" for one in of)
                message = f"{node.name} is ambiguous: it may be several columns"
                self._reject(message, self._token_at(span_of(node)), "P0205", f"say {aliases}")
            return _called(_FLINK_BOUNDS[node.name.lower()], _period_of(of[0], node), node) if of else None

        return reading

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


def _session_tables(source: FromSource | None) -> list[NamedSource]:
    """Return the sources of FROM that have a session window as others write it."""
    if isinstance(source, JoinedSource):
        return _session_tables(source.left) + _session_tables(source.right)
    windowed = isinstance(source, NamedSource) and source.window is not None and source.window.time is not None
    return [source] if windowed and isinstance(source, NamedSource) else []


def _conditions_read(source: FromSource, reading: Reading) -> FromSource:
    """Return FROM with what `reading` returns for parts of its conditions in their place."""
    if not isinstance(source, JoinedSource):
        return source
    left, right = (_conditions_read(side, reading) for side in (source.left, source.right))
    on = None if source.on is None else source.on.transform(lambda part: reading(part) or part)
    return replace(source, left=left, right=right, on=on)


def _alias(source: NamedSource) -> Name:
    return source.alias or source.name


def _period(query: SelectQuery, at: exp.Expr) -> exp.Expr:
    assert isinstance(query.source, NamedSource)
    return _period_of(query.source, at)


def _period_of(source: NamedSource, at: exp.Expr) -> exp.Expr:
    name = _alias(source)
    column = exp.Column(this=exp.Identifier(this=name.text, quoted=name.quoted))
    return _called("VALID", column, at)


def _bound(query: SelectQuery, name: str, at: exp.Expr) -> exp.Expr:
    return _called(name, _period(query, at), at)


def _called(name: str, argument: exp.Expr, at: exp.Expr) -> exp.Expr:
    call = exp.Anonymous(this=name, expressions=[argument])
    for node in (call, *argument.find_all(exp.Expression)):
        node.meta.setdefault("span", span_of(at))
    return call


def _written(identifier: exp.Expr) -> Name:
    return Name(identifier.name, bool(identifier.args.get("quoted")))


def _read(query: SelectQuery, reading: Reading, names: Collection[str]) -> SelectQuery:
    """Return a query with what `reading` returns for parts of it in their place. names: items that keep their names."""

    def read(node: exp.Expr) -> exp.Expr:
        return node.transform(lambda part: reading(part) or part)

    def item(one: Item) -> Item:
        if not isinstance(one.value, exp.Expression):
            return one
        named = isinstance(one.value, exp.Column) and one.value.name.lower() in (*names, _WINDOW)
        alias = Name(one.value.name, False, one.span) if one.alias is None and named else one.alias
        return replace(one, value=read(one.value), alias=alias if reading(one.value) is not None else one.alias)

    return replace(
        query,
        items=tuple(map(item, query.items)),
        group=tuple(map(read, query.group)),
        where=None if query.where is None else read(query.where),
        having=None if query.having is None else read(query.having),
    )
