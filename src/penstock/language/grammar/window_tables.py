"""TUMBLE, HOP and CUMULATE as others write them (docs/recipes.md): functions in FROM, and calls in GROUP BY.

Flink: `FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(at), INTERVAL '10' MINUTES))`, shorter `FROM TUMBLE(clicks, at,
INTERVAL '10' MINUTES)`; of old `GROUP BY TUMBLE(at, INTERVAL '10' MINUTES)` with `TUMBLE_START(at, ..)`. Spark:
`GROUP BY window(at, '10 minutes')` with `window.start`. What stands in GROUP BY is read as the function in FROM, and
groups by its columns.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.language.dialect import span_of
from penstock.language.grammar.sessions import SessionGrammar, interval_of, read_in_query
from penstock.language.queries import (
    Count,
    DerivedSource,
    Duration,
    Item,
    Name,
    NamedSource,
    QueryTree,
    SelectQuery,
    Star,
    WindowTable,
    WindowTableClause,
)
from penstock.language.text import TextSpan

_KINDS = tuple(kind.value for kind in WindowTable)
_COLUMNS = ("window_start", "window_end", "window_time")
#: The number of lengths that a call has, without the offset.
_LENGTHS = {WindowTable.TUMBLE: 1, WindowTable.HOP: 2, WindowTable.CUMULATE: 2}
_WRITTEN = {
    WindowTable.TUMBLE: "TUMBLE(clicks, at, INTERVAL 10 MINUTES)",
    WindowTable.HOP: "HOP(clicks, at, INTERVAL 5 MINUTES, INTERVAL 15 MINUTES): the slide, then the length",
    WindowTable.CUMULATE: "CUMULATE(clicks, at, INTERVAL 1 HOUR, INTERVAL 1 DAY): the step, then the longest",
}
#: What follows the name of a function of old Flink -> the column that it is.
_PARTS = {"START": "window_start", "END": "window_end", "ROWTIME": "window_time"}


class WindowTableGrammar(SessionGrammar):
    """Parser of both forms."""

    @abstractmethod
    def query(self) -> QueryTree:
        """Parse a whole query."""

    # --- in FROM

    def _window_table(self) -> DerivedSource | None:
        """Parse a function in FROM without what may follow it; None for another source."""
        start = self._here()
        wrapped = self._at("TABLE") and self._next.token_type is TokenType.L_PAREN
        word = self._ahead(2 if wrapped else 0)
        kind = None if word is None or word.text.upper() not in _KINDS else WindowTable[word.text.upper()]
        if kind is None or not (wrapped or self._calls_windows()):
            return None
        self._advance(4 if wrapped else 2)
        query = self._windowed()
        self._need_token(TokenType.COMMA, ",")
        described = bool(self._take("DESCRIPTOR"))
        if described:
            self._need_token(TokenType.L_PAREN, "(")
        time = self._name("a column name")
        if described:
            self._need_token(TokenType.R_PAREN, ")")
        lengths: list[Duration | Count] = []
        while self._match(TokenType.COMMA):
            lengths.append(self._length_of_window())
        closing = self._here()
        self._need_token(TokenType.R_PAREN, ")")
        if wrapped:
            self._need_token(TokenType.R_PAREN, ")")
        clause = self._window_table_clause(kind, time, lengths, start.to(closing))
        return DerivedSource(query, windows=clause, span=self._since(start))

    def _calls_windows(self) -> bool:
        """Return whether the name that is next is a function: a source of that name has a list of columns, in which no
        length stands."""
        if self._next is None or self._next.token_type is not TokenType.L_PAREN:
            return False
        steps, depth, commas = 2, 1, 0
        while depth and (token := self._ahead(steps)) is not None:
            kind = token.token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if commas == 2:
                return kind in (TokenType.INTERVAL, TokenType.NUMBER)
            commas += depth == 1 and kind is TokenType.COMMA
            steps += 1
        return False

    def _windowed(self) -> QueryTree:
        """Parse the source: TABLE and a name, a name, or a query in parentheses."""
        start = self._here()
        if self._match(TokenType.L_PAREN):
            query = self.query()
            self._need_token(TokenType.R_PAREN, ")")
            return query
        self._take("TABLE")
        name = self._source_name("a stream, or a query in parentheses")
        return _all_of(NamedSource(name, span=name.span), self._since(start))

    def _length_of_window(self) -> Duration | Count:
        following = self._ahead(1)
        bare = following is not None and following.token_type in (TokenType.COMMA, TokenType.R_PAREN)
        if self._curr.token_type is TokenType.NUMBER and bare:
            start = self._here()
            value, _ = self._whole("a number of ticks")
            return Count(value, self._since(start))
        return self._duration()

    def _window_table_clause(
        self,
        kind: WindowTable,
        time: Name,
        lengths: list[Duration | Count],
        span: TextSpan,
        grouped: bool = False,
    ) -> WindowTableClause:
        number = _LENGTHS[kind]
        if not number <= len(lengths) <= number + 1:
            what = "a length" if number == 1 else "two lengths"
            message = f"{kind.value} takes a column, {what} and possibly an offset"
            self._reject(message, self._token_at(span), "P0328", _WRITTEN[kind])
        offset = lengths[number] if len(lengths) > number else None
        return WindowTableClause(kind, time, tuple(lengths[:number]), offset, grouped, span)

    # --- in GROUP BY

    def _at_window_call(self) -> bool:
        """Return whether Spark's `window(` is next."""
        return self._at("WINDOW") and self._next is not None and self._next.token_type is TokenType.L_PAREN

    def _with_window_tables(self, query: SelectQuery) -> SelectQuery:
        """Return a query whose grouping by windows is one by the columns of the function in FROM."""
        calls = [key for key in query.group if _is_call(key)]
        if not calls:
            return query
        call, span = calls[0], span_of(calls[0])
        source = query.source
        if isinstance(source, NamedSource) and source.window is None and source.items is None and source.valid is None:
            name = source.alias or source.name
            inner = replace(source, alias=None)
            derived = DerivedSource(_all_of(inner, source.span), alias=name, span=source.span)
        elif isinstance(source, DerivedSource) and source.window is None and source.windows is None:
            derived = source
        else:
            hint = "name a join in WITH j AS (ISTREAM(SELECT ..)); a window behind the stream needs no other"
            message = f"{call.this} groups one stream, which has no other window"
            self._reject(message, self._token_at(span), "P0328", hint)
        clause = self._window_call(call)
        group = (*(key for key in query.group if key is not call), *(_column(name, call) for name in _COLUMNS))

        def reading(node: exp.Expr) -> exp.Expr | None:
            part = _part_of(node, call)
            return None if part is None else _column(part, node)

        found = replace(query, source=replace(derived, windows=clause), group=group)
        return read_in_query(found, reading, ("start", "end"))

    def _window_call(self, call: exp.Expr) -> WindowTableClause:
        """Return what a call in GROUP BY stands for."""
        span, spark = span_of(call), str(call.this).upper() == "WINDOW"
        column, *written = call.expressions or [exp.Null()]
        if not isinstance(column, exp.Column):
            hint = "as in window(at, '10 minutes') or TUMBLE(at, INTERVAL 10 MINUTES)"
            self._reject(f"{call.this} takes the timestamp of the stream first", self._token_at(span), "P0328", hint)
        lengths = [self._written_length(one, call) for one in written]
        time = Name(column.name, column.this.quoted, span_of(column))
        if not spark:
            return self._window_table_clause(WindowTable[str(call.this).upper()], time, lengths, span, grouped=True)
        if len(lengths) < 2:
            return self._window_table_clause(WindowTable.TUMBLE, time, lengths, span, grouped=True)
        # The length comes first.
        return self._window_table_clause(
            WindowTable.HOP, time, [lengths[1], lengths[0], *lengths[2:]], span, grouped=True
        )

    def _written_length(self, written: exp.Expr, call: exp.Expr) -> Duration | Count:
        span = span_of(written)
        if isinstance(written, exp.Literal) and not written.is_string and str(written.this).isdigit():
            return Count(int(written.this), span)
        interval = interval_of(written.unnest())
        if interval is None:
            hint = "as in '10 minutes' or INTERVAL 10 MINUTES"
            self._reject(f"a length of {call.this} is an interval", self._token_at(span), "P0328", hint)
        return Duration(interval, span)


def _all_of(source: NamedSource, span: TextSpan) -> SelectQuery:
    return SelectQuery((Item(Star(span=span), span=span),), source, span=span)


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).upper() in ("WINDOW", "TUMBLE", "HOP")


def _part_of(node: exp.Expr, call: exp.Expr) -> str | None:
    """Return the column of the window that an expression of the query stands for."""
    if str(call.this).upper() == "WINDOW":
        of_window = isinstance(node, exp.Column) and node.table.lower() == "window"
        of_call = isinstance(node, exp.Dot) and node.this == call
        return _PARTS.get(node.name.upper()) if of_window or of_call else None
    if not isinstance(node, exp.Anonymous):
        return None
    function, _, part = str(node.this).upper().partition("_")
    same = function == str(call.this).upper() and node.expressions == call.expressions
    return _PARTS.get(part) if same else None


def _column(name: str, at: exp.Expr) -> exp.Expr:
    column = exp.Column(this=exp.Identifier(this=name, quoted=False))
    for node in (column, column.this):
        node.meta["span"] = span_of(at)
    return column
