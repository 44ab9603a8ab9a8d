"""Session windows as Spark and Flink write them, read as `[PARTITION BY .. SESSION gap]` (docs/recipes.md).

Spark: `GROUP BY usr, session_window(at, '5 minutes')`, with `session_window.start` and `.end`. Flink: `FROM
TABLE(SESSION(TABLE clicks PARTITION BY usr, DESCRIPTOR(at), INTERVAL '5' MINUTES))`, with `window_start` and
`window_end`. The bounds become BEGIN and END of the period of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.language.dialect import span_of, token_span
from penstock.language.grammar.windows import WindowGrammar
from penstock.language.queries import (
    AllItems,
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
    SampleClause,
    SelectQuery,
    WindowClause,
)
from penstock.language.text import TextSpan
from penstock.types import Interval, Unit

# --- The grammar of SAMPLE and TABLESAMPLE (docs/language/windows.md).

_Parts = tuple[Fraction | None, tuple[exp.Expr, ...], int | None, tuple[exp.Expr, ...], exp.Expr | None]


_KEPT = "SAMPLE(10) keeps a tenth, SAMPLE(10 ROWS) ten rows"
_PARTS = "the columns come first, then the weight: SAMPLE(10 ROWS PER c WEIGHT x)"


class SampleGrammar(WindowGrammar):
    """Parser of samples. `sample()` parses one if there is one."""

    def sample(self) -> SampleClause | None:
        """Parse `SAMPLE ( p [BY c, ...] )`, `SAMPLE ( n ROWS [PER c, ...] [WEIGHT e] )`, or what TABLESAMPLE calls
        these, each with REPEATABLE ( seed ); return None if none is next."""
        start = self._here()
        if self._at("TABLESAMPLE"):
            self._advance()
            bernoulli = bool(self._take("BERNOULLI"))
            if self._at("SYSTEM"):
                self._fail("'('", hint="rows are sampled one by one: TABLESAMPLE BERNOULLI (10), or SAMPLE(10)")
            if self._at("RESERVOIR"):
                self._fail("'('", hint="TABLESAMPLE (10 ROWS), or SAMPLE(10 ROWS), keeps ten rows")
            self._need_token(TokenType.L_PAREN, "(")
            parts = self._inside(foreign=True, only_percent=bernoulli)
        elif self._at("SAMPLE") and self._next.token_type is TokenType.L_PAREN:
            self._advance(2)
            parts = self._inside()
        elif self._at("SAMPLE") and self._next.token_type is TokenType.NUMBER:
            self._advance()
            self._fail("'('", hint=_KEPT)
        elif self._at("SAMPLE") and self._next.text.upper() in ("BERNOULLI", "SYSTEM", "ROW", "BLOCK"):
            self._advance()
            self._fail("'('", hint="rows are sampled one by one: SAMPLE(10) keeps a tenth")
        elif self._at("USING") and self._next.text.upper() == "SAMPLE":
            self._fail("", hint="SAMPLE(10) keeps a tenth, SAMPLE(10 ROWS) ten rows, without USING")
        else:
            return None
        self._need_token(TokenType.R_PAREN, ")")
        seed = None
        if self._take("REPEATABLE"):
            self._need_token(TokenType.L_PAREN, "(")
            seed, _ = self._whole("a seed from 0")
            self._need_token(TokenType.R_PAREN, ")")
        elif self._at("SEED") and self._next.token_type is TokenType.L_PAREN:
            self._fail("", hint="a seed is REPEATABLE(3)")
        percent, by, rows, per, weight = parts
        return SampleClause(percent, by, rows, per, weight, seed, self._since(start))

    def _inside(self, foreign: bool = False, only_percent: bool = False) -> _Parts:
        """Return (percent, by, rows, per, weight). foreign: the words of other systems, without our clauses."""
        token = self._curr
        if foreign and self._at("BUCKET"):
            self._fail("a percentage", hint="SAMPLE(10 BY c) keeps a tenth of the values of c")
        number, _ = self._number("a percentage", hint=_KEPT)
        if not only_percent and self._take_any("ROWS", "ROW"):
            if number.denominator != 1:
                self._fail("a whole number of rows", token, hint=_KEPT)
            per = self._sampled_by() if not foreign and self._take("PER") else ()
            weight = self._condition() if not foreign and self._take("WEIGHT") else None
            if weight is not None and self._at("PER"):
                self._fail("')'", hint=_PARTS)
            return None, (), int(number), per, weight
        if self._curr and (self._curr.token_type is TokenType.MOD or (not foreign and self._at("PERCENT"))):
            self._fail("')'", hint="the number is in percent: SAMPLE(10) keeps a tenth")
        if foreign and not self._take("PERCENT") and not only_percent:
            self._fail("PERCENT or ROWS", hint="TABLESAMPLE (10 PERCENT) keeps a tenth, TABLESAMPLE (10 ROWS) ten rows")
        by = self._sampled_by() if not foreign and self._take("BY") else ()
        return number, by, None, (), None

    def _sampled_by(self) -> tuple[exp.Expr, ...]:
        found = [self._required(self._parse_column())]
        while self._match(TokenType.COMMA):
            found.append(self._required(self._parse_column()))
        return tuple(found)


# --- The gap of Spark's `session_window` where it is computed of the row, read as a length in a unit of time.
#
# A length is a text such as '5 seconds', an INTERVAL, a number of them (`wait * INTERVAL '1' SECOND`), or a text that
# is put together (`CONCAT(wait, ' seconds')`); CASE, IF and COALESCE choose among lengths. All become whole numbers of
# the largest unit that divides them.


@dataclass(frozen=True)
class _Multiple:
    """`value` times `interval`, or the interval alone; at: what is written there."""

    interval: Interval
    at: exp.Expr
    value: exp.Expr | None = None

    @property
    def micros(self) -> int | None:
        """Return the interval in microseconds; None where it is no whole number of them."""
        found = self.interval.amount * self.interval.unit.value
        return found.numerator if found.denominator == 1 else None


def gap_of(written: exp.Expr) -> Duration | Length | None:
    """Return the length that is the value of an expression; None where it is none."""
    constant = interval_of(written.unnest())
    if constant is not None:
        return Duration(constant, span_of(written))
    found = list(_multiples(written))
    sizes = [one.micros if one is not None else None for one in found]
    if not found or None in sizes:
        return None
    units = (unit for unit in reversed(Unit) if all(size is not None and size % unit.value == 0 for size in sizes))
    unit = next(units)
    return Length(_in_units(written, unit), unit, span_of(written))


def interval_of(node: exp.Expr) -> Interval | None:
    """Return the length that a text or an INTERVAL stands for; None where it is none."""
    if isinstance(node, exp.Literal) and node.is_string:
        return Interval.parse(node.this)
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    if unit is not None and isinstance(node.this, exp.Literal):
        return Interval.parse(f"{node.this.this} {unit.name}")
    return None


def _multiple(node: exp.Expr) -> _Multiple | None:
    """Return the multiple that a node without a choice stands for."""
    constant = interval_of(node)
    if constant is not None:
        return _Multiple(constant, node)
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            constant = interval_of(other.unnest()) if isinstance(other.unnest(), exp.Interval) else None
            if constant is not None:
                return _Multiple(constant, node, one)
    parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else _arguments(node, "CONCAT")
    if len(parts) == 2 and isinstance(parts[1], exp.Literal) and parts[1].is_string:
        unit = Unit.parse(str(parts[1].this).strip())
        if unit is not None:
            return _Multiple(Interval(Fraction(1), unit), node, parts[0])
    return None


def _arguments(node: exp.Expr, name: str) -> list[exp.Expr]:
    return list(node.expressions) if isinstance(node, exp.Anonymous) and str(node.this).upper() == name else []


def _multiples(node: exp.Expr) -> Iterator[_Multiple | None]:
    """Return the lengths among which an expression chooses; None for what is none."""
    node = node.unnest()
    if isinstance(node, exp.Null):
        return
    branches = _branches(node)
    if not branches:
        yield _multiple(node)
    for branch in branches:
        yield from _multiples(branch)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return [choice.args["true"] for choice in node.args["ifs"]] + ([] if default is None else [default])
    chosen = _arguments(node, "IF")
    return chosen[1:] if chosen else _arguments(node, "COALESCE")


def _in_units(node: exp.Expr, unit: Unit) -> exp.Expr:
    """Return a copy of an expression with whole numbers of `unit` in place of its lengths."""
    whole = node.copy()
    _replace(whole, lambda one: _number(one, unit))
    # What stands alone is replaced by itself.
    alone = _multiple(whole.unnest())
    return whole if alone is None else _number(alone, unit)


def _replace(node: exp.Expr, read: Callable[[_Multiple], exp.Expr]) -> None:
    for branch in _branches(node.unnest()):
        found = _multiple(branch.unnest())
        if found is not None:
            branch.replace(read(found))
        else:
            _replace(branch, read)


def _number(one: _Multiple, unit: Unit) -> exp.Expr:
    assert one.micros is not None
    count: exp.Expr = exp.Literal.number(one.micros // unit.value)
    count.meta["span"] = span_of(one.at)
    if one.value is None:
        return count
    if one.micros == unit.value:
        return one.value
    product = exp.Mul(this=one.value.copy(), expression=count)
    product.meta["span"] = span_of(one.at)
    return product


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
            return read_in_query(query, _spark_reading(query, calls[0]), ("start", "end"))
        tables = _session_tables(source)
        if not tables:
            return query
        reading = self._flink_reading(tables)
        read = read_in_query(query, reading, _FLINK_BOUNDS)
        return replace(read, source=_conditions_read(source, reading)) if isinstance(source, JoinedSource) else read

    def _order_of_sessions(
        self, tree: QueryTree, order: tuple[OrderItem, ...] | AllItems
    ) -> tuple[OrderItem, ...] | AllItems:
        """Return the sort keys of a query, with the bounds of its session window as those of the period."""
        tables = _session_tables(tree.source) if isinstance(tree, SelectQuery) else []
        if not tables or isinstance(order, AllItems):
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


def read_in_query(query: SelectQuery, reading: Reading, names: Collection[str]) -> SelectQuery:
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
