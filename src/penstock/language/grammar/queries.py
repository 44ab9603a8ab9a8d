"""The grammar of queries (docs/language/queries.md): SELECT, set operations, relation-to-stream operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import TokenType

from penstock.language.dialect import span_of
from penstock.language.elsewhere import FUNCTIONS
from penstock.language.grammar.preferences import PreferenceGrammar
from penstock.language.grammar.sources import OPERATOR_WORDS
from penstock.language.queries import (
    AllItems,
    DerivedSource,
    EmbeddedQuery,
    FrequencyClause,
    FromSource,
    Item,
    LocalView,
    Mark,
    Name,
    OrderItem,
    QueryTree,
    Renamed,
    SelectQuery,
    SetOperator,
    SetQuery,
    SortedQuery,
    Star,
    StreamOperator,
    StreamQuery,
    ToStream,
    ValuesQuery,
    WithQuery,
)
from penstock.language.text import TextSpan

T = TypeVar("T")

_TEXTS = (TokenType.STRING, TokenType.RAW_STRING)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_BY_NAME = "UNION [ALL] BY NAME there is; for others write the columns of both in one order"
_SETS = {
    "UNION": SetOperator.UNION,
    "EXCEPT": SetOperator.EXCEPT,
    "MINUS": SetOperator.EXCEPT,
    "INTERSECT": SetOperator.INTERSECT,
}


#: What may follow the select list of a SELECT without FROM, beside words of set operations.
_BEHIND_ITEMS = (
    TokenType.R_PAREN,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ORDER_BY,
    TokenType.LIMIT,
    TokenType.OFFSET,
    TokenType.FETCH,
)

#: Sets of one GROUP BY.
MAX_SETS = 256


def _sets_of(word: str, elements: Sequence[tuple[exp.Expr, ...]]) -> list[tuple[exp.Expr, ...]]:
    """Return the sets of ROLLUP, every beginning of its elements, or of CUBE, every choice; the longest first."""
    count = len(elements)
    if word == "ROLLUP":
        chosen = [elements[:length] for length in range(count, -1, -1)]
    else:
        # Twice as many as there may be are enough to be refused.
        wide = min(count, MAX_SETS.bit_length())
        masks = range(2**wide - 1, -1, -1)
        chosen = [[one for i, one in enumerate(elements[:wide]) if mask >> (wide - 1 - i) & 1] for mask in masks]
    return [tuple(key for element in one for key in element) for one in chosen]


class QueryGrammar(PreferenceGrammar):
    """Parser of queries. `query()` parses a whole query."""

    def reset(self) -> None:
        super().reset()
        self._read: dict[int, tuple[QueryTree, int] | ParseError] = {}
        self._output_windows: dict[int, tuple[ToStream, Item]] = {}

    def query(self) -> QueryTree:
        """Parse a whole query; results are cached by position: brackets may begin a query or a value that contains one,
        and both are tried at every level of nested brackets.
        """
        index = self._index
        known = self._read.get(index)
        if isinstance(known, ParseError):
            raise known
        if known is not None:
            self._advance(known[1] - index)
            return known[0]
        try:
            tree = self._query()
        except ParseError as error:
            self._read[index] = error
            raise
        self._read[index] = (tree, self._index)
        return tree

    def _query(self) -> QueryTree:
        start = self._here()
        if self._curr.token_type is TokenType.WITH:
            return self._with()
        tree = self._set_operations()
        order, order_span = self._order()
        limit, limit_span = self._amount(TokenType.LIMIT)
        offset, offset_span = self._amount(TokenType.OFFSET)
        if offset is not None:
            self._take_any("ROWS", "ROW")
            if limit is None:
                limit, limit_span = self._amount(TokenType.LIMIT)
        if limit is not None and self._at("WITH", "TIES"):
            self._fail(
                "", hint="rows that equal the last one by ORDER BY too: FETCH FIRST 5 ROWS WITH TIES, in place of LIMIT"
            )
        ties: Mark | None = None
        if self._at("FETCH"):
            if limit is not None:
                self._reject("a query has LIMIT or FETCH", code="P0103", hint="leave one of them out")
            limit, limit_span, ties = self._fetch()
        self._refuse_foreign()
        if order or limit is not None or offset is not None:
            order = self._order_of_sessions(tree, order)
            spans = order_span, limit_span, offset_span, self._since(start)
            return SortedQuery(tree, order, limit, offset, ties, *spans)
        return tree

    def _fetch(self) -> tuple[exp.Expr, TextSpan, Mark | None]:
        """Parse FETCH { FIRST | NEXT } [n] { ROW | ROWS } { ONLY | WITH TIES }."""
        start = self._here()
        self._advance()
        if self._take_any("FIRST", "NEXT") is None:
            self._fail("FIRST or NEXT")
        if self._at("ROW") or self._at("ROWS"):
            limit: exp.Expr = exp.Literal.number(1)
            limit.meta["span"] = self._since(start)
        else:
            limit = self._condition()
        if self._take_any("ROWS", "ROW") is None:
            self._fail("ROWS")
        ties = self._mark("WITH", "TIES")
        if ties is None and not self._take("ONLY"):
            self._fail("ONLY or WITH TIES")
        return limit, self._since(start), ties

    def _amount(self, word: TokenType) -> tuple[exp.Expr | None, TextSpan]:
        """Parse LIMIT or OFFSET with its number."""
        start = self._here()
        if not self._match(word):
            return None, start
        if self._at("ALL"):
            self._fail("a number of rows", hint="for all rows leave LIMIT out")
        return self._condition(), self._since(start)

    def _with(self) -> WithQuery:
        start = self._here()
        self._advance()
        if self._at("RECURSIVE"):
            hint = "so many steps as are known in advance: join a stream or relation with itself once for each"
            self._reject("WITH RECURSIVE is not supported", code="P0901", hint=hint)
        views = [self._local_view()]
        while self._match(TokenType.COMMA):
            views.append(self._local_view())
        return WithQuery(tuple(views), self.query(), self._since(start))

    def _local_view(self) -> LocalView:
        start = self._here()
        name = self._name("a name")
        columns = self._names("a column name") if self._curr.token_type is TokenType.L_PAREN else ()
        self._need("AS")
        self._need_token(TokenType.L_PAREN, "(")
        tree = self.query()
        self._need_token(TokenType.R_PAREN, ")")
        return LocalView(name, columns, tree, self._since(start))

    def _set_operations(self) -> QueryTree:
        return self._set_level(lambda: self._set_level(self._term, ("INTERSECT",)), ("UNION", "EXCEPT", "MINUS"))

    def _set_level(self, operand: Callable[[], QueryTree], words: tuple[str, ...]) -> QueryTree:
        # INTERSECT binds tighter than the others, as in SQL.
        start = self._here()
        tree = operand()
        while True:
            at = self._here()
            word = self._take_any(*words)
            if word is None:
                return tree
            every = bool(self._take("ALL"))
            if not every:
                self._take("DISTINCT")
            by_name = self._mark("BY", "NAME")
            if by_name is not None and word != "UNION":
                self._reject(f"{word} BY NAME is not supported", self._prev, "P0901", _BY_NAME)
            operator = self._since(at)
            tree = SetQuery(tree, operand(), _SETS[word], every, by_name, operator, self._since(start))

    def _term(self) -> QueryTree:
        start = self._here()
        if self._at_operator():
            operator = self._operator()
            if self._match(TokenType.L_PAREN):
                tree = self.query()
                self._need_token(TokenType.R_PAREN, ")")
                operator = self._operator_window(operator)
            else:
                tree = self._select()
            return StreamQuery(operator, tree, self._since(start))
        if self._match(TokenType.L_PAREN):
            tree = self.query()
            self._need_token(TokenType.R_PAREN, ")")
            return tree
        return self._values() if self._at_values() else self._select()

    # --- relation to stream

    def _at_operator(self) -> bool:
        """Return whether a relation-to-stream operator is next, not a column or source of that name."""
        if not any(self._at(word) for word in OPERATOR_WORDS):
            return False
        following = self._ahead(1)
        return following is not None and (
            following.token_type in (TokenType.L_PAREN, TokenType.SELECT)
            or following.text.upper() == "RESTORE"
            or (following.token_type is TokenType.DASH and self._is_restore(2))
        )

    def _query_in_call(self) -> bool:
        """Return whether a name or an operator around a query is next, and no function call."""
        opening, first = self._ahead(1), self._ahead(2)
        if opening is None or opening.token_type is not TokenType.L_PAREN or first is None:
            return True
        return first.token_type in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN)

    def _is_restore(self, steps: int) -> bool:
        token = self._ahead(steps)
        return token is not None and token.text.upper() == "RESTORE"

    def _operator(self) -> ToStream:
        start = self._here()
        word = self._take_any(*OPERATOR_WORDS)
        assert word is not None
        if self._curr.token_type is TokenType.DASH and self._is_restore(1):
            self._advance()
        restore = self._mark("RESTORE")
        return ToStream(StreamOperator[word], restore, None, self._since(start))

    def _hint_of_call(self) -> str | None:
        """Return the hint of a call of another system: topK(5)(x), APPROXIMATE COUNT(DISTINCT x)."""
        if not self._at("("):
            return None
        index, depth = self._index - 1, 0
        while index > 0:
            depth += {TokenType.R_PAREN: 1, TokenType.L_PAREN: -1}.get(self._tokens[index].token_type, 0)
            if not depth:
                break
            index -= 1
        called = self._tokens[index].token_type is TokenType.L_PAREN
        name = self._tokens[index - 1].text.upper()
        return FUNCTIONS.get(name) if called else FUNCTIONS.get(f"{name} {self._tokens[index].text.upper()}")

    def _operator_window(self, operator: ToStream) -> ToStream:
        """Parse the window of `WSTREAM (...)[window]`."""
        if operator.operator is not StreamOperator.WSTREAM:
            return operator
        return ToStream(operator.operator, operator.restore, self.window(), operator.span)

    # --- SELECT

    def _select(self) -> SelectQuery:
        start = self._here()
        source = self._from_sources() if self._match(TokenType.FROM) else None
        if source is not None and self._curr.token_type is not TokenType.SELECT:
            return self._behind_items(start, (Item(Star(span=start), None, start),), source)
        if not self._match(TokenType.SELECT):
            self._fail("a query")
        distinct = bool(self._take("DISTINCT"))
        if not distinct and self._at("ALL"):
            self._advance()
        wrapped: ToStream | None = None
        windowed: list[tuple[ToStream, Item]] = []
        if self._at_operator():
            wrapped = self._operator()
            self._need_token(TokenType.L_PAREN, "(")
            distinct = bool(self._take("DISTINCT")) or distinct
            items = self._items()
            self._need_token(TokenType.R_PAREN, ")")
            wrapped = self._operator_window(wrapped)
        else:
            first = self._index
            items = self._items()
            windowed = [found for index, found in self._output_windows.items() if first <= index < self._index]
        frequency = self.frequency()
        if frequency is not None:
            items = self._named_behind(items)
        if source is not None:
            pass
        elif self._match(TokenType.FROM):
            source = self._from_sources()
        elif not self._without_from():
            hint: str | None = None
            if wrapped is not None and self._at(","):
                hint = f"put all items in its parentheses: {wrapped.operator.value}(a, b)"
            self._fail("',' or FROM", hint=hint or self._hint_of_call())
        return self._behind_items(start, items, source, distinct, wrapped, frequency, windowed)

    def _behind_items(
        self,
        start: TextSpan,
        items: tuple[Item, ...],
        source: FromSource | None,
        distinct: bool = False,
        wrapped: ToStream | None = None,
        frequency: FrequencyClause | None = None,
        windowed: Sequence[tuple[ToStream, Item]] = (),
    ) -> SelectQuery:
        """Parse the clauses of a SELECT behind its items and FROM. windowed: the windows over results in its items."""
        where = self._condition() if self._match(TokenType.WHERE) else None
        self._refuse_foreign()
        group, group_all, sets = self._group() if self._match(TokenType.GROUP_BY) else ((), None, ())
        frequent = self.frequent() if (group or group_all) and not sets else None
        self._refuse_foreign()
        having = self._condition() if self._match(TokenType.HAVING) else None
        preference = self.preference()
        self._refuse_foreign()
        span = self._since(start)
        if windowed:
            operator, item = windowed[0]
            if len(windowed) > 1 or len(items) > 1 or group or sets or group_all or frequency is not None:
                hint = "write the query with WSTREAM in FROM, with a name for each result"
                token = self._tokens[self._index - 1]
                self._reject("WSTREAM inside an aggregate stands alone, without GROUP BY", token, "P0103", hint)
            results = SelectQuery((item,), source, where=where, having=having, preference=preference, span=span)
            derived = DerivedSource(StreamQuery(operator, results, span), span=span)
            return SelectQuery(items, derived, distinct, span=span)
        query = SelectQuery(
            items,
            source,
            distinct,
            wrapped,
            frequency,
            where,
            group,
            group_all,
            sets,
            frequent,
            having,
            preference,
            span,
        )
        return self._with_window_tables(self._with_sessions(query))

    def _without_from(self) -> bool:
        """Return whether what is next may follow the select list of a SELECT without FROM."""
        if not self._curr or self._curr.token_type in _BEHIND_ITEMS or self._at_as_of():
            return True
        return any(map(self._at, _SETS)) or (self._start_follows and self._at_start())

    def _values(self) -> ValuesQuery:
        start = self._here()
        self._advance()
        rows, spans = self._value_rows()
        return ValuesQuery(rows, spans, self._since(start))

    def _value_rows(self) -> tuple[tuple[tuple[exp.Expr, ...], ...], tuple[TextSpan, ...]]:
        """Parse `(value, ...), ...`; return the rows and their spans."""
        rows: list[tuple[exp.Expr, ...]] = []
        spans: list[TextSpan] = []
        while True:
            row_start = self._here()
            self._need_token(TokenType.L_PAREN, "(")
            row = [self._condition()]
            while self._match(TokenType.COMMA):
                row.append(self._condition())
            if not self._match(TokenType.R_PAREN):
                self._fail("',' or ')'")
            rows.append(tuple(row))
            spans.append(self._since(row_start))
            if not self._match(TokenType.COMMA):
                return tuple(rows), tuple(spans)

    def _output_window(self) -> exp.Expr:
        """Parse `WSTREAM(item)[window]` inside an aggregate `[golab 3.4]`; return the column of the results, over which
        `_select` puts what is around it."""
        index, start = self._index, self._here()
        operator = self._operator()
        self._need_token(TokenType.L_PAREN, "(")
        item = self._item()
        if isinstance(item.value, Star):
            hint = "as in SUM(WSTREAM(a)[ROWS 10])"
            self._reject("WSTREAM inside an aggregate takes one value, not *", self._prev, "P0103", hint)
        self._need_token(TokenType.R_PAREN, ")")
        operator = self._operator_window(operator)
        span = self._since(start)
        name = item.alias or Name("wstream", span=span)
        self._output_windows[index] = operator, Item(item.value, name, item.span)
        column = exp.Column(this=exp.to_identifier(name.text, quoted=name.quoted))
        for node in (column, column.this):
            node.meta["span"] = span
        return column

    def _items(self) -> tuple[Item, ...]:
        found = [self._item()]
        while self._match(TokenType.COMMA):
            found.append(self._item())
        return tuple(found)

    def _named_behind(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """Parse the alias in `COUNT(*) [FREQUENCY ...] AS Rate`: the paper writes the name of the last item after the
        frequency.
        """
        last = items[-1]
        if last.alias is not None or isinstance(last.value, Star) or (alias := self._alias()) is None:
            return items
        return (*items[:-1], Item(last.value, alias, last.span))

    def _item(self) -> Item:
        if self._curr.token_type is TokenType.FROM:
            self._fail("an expression")
        if (star := self._star()) is not None:
            return Item(star, None, star.span)
        value = self._required(self._parse_disjunction())
        return Item(value, self._alias(), span_of(value))

    def _star(self) -> Star | None:
        """Parse `*`, `alias.*` or COLUMNS('pattern'), with what is changed of it; return None if none is next."""
        start, behind, last = self._here(), self._ahead(1), self._ahead(2)
        qualifier: Name | None = None
        pattern: str | None = None
        if self._match(TokenType.STAR):
            pass
        elif behind is None or last is None:
            return None
        elif self._is_name() and behind.token_type is TokenType.DOT and last.token_type is TokenType.STAR:
            qualifier = self._name("the name of a source")
            self._advance(2)
        elif self._at("COLUMNS") and behind.token_type is TokenType.L_PAREN and last.token_type in _TEXTS:
            self._advance(3)
            pattern = last.text
            self._need_token(TokenType.R_PAREN, ")")
        else:
            return None
        excluded: tuple[Name, ...] = ()
        if self._list_follows("EXCLUDE") or (self._list_follows("EXCEPT") and not self._query_ahead(1)):
            self._advance()
            excluded = self._names("a column name")
        elif self._at("EXCEPT") and (name := self._ahead(1)) is not None and name.token_type in _NAMES:
            self._fail("'('", name, hint=f"columns that are left out stand in brackets: * EXCEPT ({name.text})")
        replaced = self._listed(self._replacement) if self._list_follows("REPLACE") else ()
        renamed = self._listed(self._renaming) if self._list_follows("RENAME") else ()
        return Star(qualifier, excluded, replaced, renamed, pattern, self._since(start))

    def _list_follows(self, word: str) -> bool:
        """Return whether `word (` is next."""
        behind = self._ahead(1)
        return self._at(word) and behind is not None and behind.token_type is TokenType.L_PAREN

    def _listed(self, parse: Callable[[], T]) -> tuple[T, ...]:
        """Parse `word ( part, ... )`."""
        self._advance()
        return tuple(self._in_brackets(parse))

    def _replacement(self) -> Item:
        value = self._condition()
        self._need("AS")
        return Item(value, self._name("a column name"), span_of(value))

    def _renaming(self) -> Renamed:
        column = self._name("a column name")
        self._need("AS")
        return Renamed(column, self._name("a name"))

    def _group(self) -> tuple[tuple[exp.Expr, ...], Mark | None, tuple[tuple[int, ...], ...]]:
        """Parse what follows GROUP BY: ALL, or expressions and sets of them. Return the expressions, whether it is ALL,
        and the positions of each set's, without which all of them are one set."""
        start = self._here()
        if (every := self._mark("ALL")) is not None:
            return (), every, ()
        parts = [self._grouping_part()]
        while self._match(TokenType.COMMA):
            parts.append(self._grouping_part())
        several = any(len(part) != 1 or len(part[0]) != 1 for part in parts)
        if self._at("WITH") and not self._at("WITH", "PREFERENCE"):
            self._advance()
            word = self._take_any("ROLLUP", "CUBE")
            if word is None or several:
                self._fail("ROLLUP or CUBE" if word is None else "no ROLLUP or CUBE before")
            keys = [key for part in parts for key in part[0]]
            parts, several = [_sets_of(word, [(key,) for key in keys])], True
        sets: list[tuple[exp.Expr, ...]] = [()]
        for part in parts:
            sets = [(*before, *one) for before in sets for one in part]
            if len(sets) > MAX_SETS:
                message = f"these are {len(sets):,} or more grouping sets, {MAX_SETS:,} are the limit"
                token = self._token_at(self._since(start))
                self._reject(message, token, "P0105", "group by fewer columns, or write the sets that are needed")
        keys = [key for one in sets for key in one]
        if not several:
            return tuple(keys), None, ()
        union = tuple(key for i, key in enumerate(keys) if key not in keys[:i])
        places = tuple(tuple(dict.fromkeys(union.index(key) for key in one)) for one in sets)
        return union, None, places if len(places) > 1 or not union else ()

    def _grouping_part(self) -> list[tuple[exp.Expr, ...]]:
        """Parse an expression, ROLLUP (..), CUBE (..) or GROUPING SETS (..); return its sets."""
        if not self._at_window_call():
            self._refuse_foreign()
        behind = self._ahead(1)
        if behind is not None and behind.token_type is TokenType.L_PAREN:
            if (word := self._take_any("ROLLUP", "CUBE")) is not None:
                return _sets_of(word, self._in_brackets(self._grouping_element))
            if self._take("GROUPING SETS"):
                return [one for part in self._in_brackets(self._grouping_set) for one in part]
        elif behind is not None and behind.token_type in _NAMES and (self._at("ROLLUP") or self._at("CUBE")):
            word = self._curr.text.upper()
            self._fail("'('", behind, hint=f"its columns stand in brackets: GROUP BY {word} (a, b)")
        if behind is not None and self._curr.token_type is TokenType.L_PAREN and behind.token_type is TokenType.R_PAREN:
            self._advance(2)
            return [()]
        return [(self._condition(),)]

    def _grouping_set(self) -> list[tuple[exp.Expr, ...]]:
        behind = self._ahead(1)
        nested = any(map(self._at, ("ROLLUP", "CUBE", "GROUPING SETS")))
        if nested and behind is not None and behind.token_type is TokenType.L_PAREN:
            return self._grouping_part()
        return [self._grouping_element()]

    def _grouping_element(self) -> tuple[exp.Expr, ...]:
        """Parse an expression, or several in brackets; none in brackets are the set of all rows."""
        behind = self._ahead(1)
        if self._curr.token_type is TokenType.L_PAREN and behind is not None:
            if behind.token_type is TokenType.R_PAREN:
                self._advance(2)
                return ()
            value = self._condition()
            return tuple(value.expressions) if isinstance(value, exp.Tuple) else (value.unnest(),)
        return (self._condition(),)

    def _in_brackets(self, parse: Callable[[], T]) -> list[T]:
        """Parse `( part, ... )`."""
        self._need_token(TokenType.L_PAREN, "(")
        found = [parse()]
        while self._match(TokenType.COMMA):
            found.append(parse())
        self._need_token(TokenType.R_PAREN, ")")
        return found

    def _order(self) -> tuple[tuple[OrderItem, ...] | AllItems, TextSpan]:
        start = self._here()
        if not self._match(TokenType.ORDER_BY):
            return (), start
        if self._take("ALL"):
            descending, nulls_first = self._direction()
            return AllItems(descending, nulls_first, self._since(start)), self._since(start)
        keys = [self._sort_key()]
        while self._match(TokenType.COMMA):
            keys.append(self._sort_key())
        return tuple(keys), self._since(start)

    def _sort_key(self) -> OrderItem:
        start = self._here()
        value = self._condition()
        return OrderItem(value, *self._direction(), self._since(start))

    def _direction(self) -> tuple[bool, bool | None]:
        """Parse ASC or DESC, and NULLS FIRST or NULLS LAST; return whether descending, and whether NULLs are first."""
        descending = bool(self._take("DESC"))
        if not descending:
            self._take("ASC")
        nulls_first: bool | None = None
        if self._take("NULLS"):
            word = self._take_any("FIRST", "LAST")
            if word is None:
                self._fail("FIRST or LAST")
            nulls_first = word == "FIRST"
        return descending, nulls_first

    # --- queries inside expressions: where sqlglot's expression grammar parses one

    def _parse_select(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
        consume_pipe: bool = True,
    ) -> exp.Expr | None:
        if not self._curr or not self._query_ahead():
            return None
        index = self._index
        start = self._here()
        ambiguous = self._curr.token_type is TokenType.L_PAREN
        try:
            tree = self.query()
            if ambiguous and self._curr.token_type is not TokenType.R_PAREN:
                self._fail("')'")
        except ParseError:
            if not ambiguous:
                raise
            self._retreat(index)
            return None
        found = EmbeddedQuery(cql=tree)
        found.meta["span"] = self._since(start)
        return found

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        # The argument of a function.
        if self._curr and self._at("WSTREAM") and not self._query_in_call():
            return self._output_window()
        return super()._parse_lambda(alias)

    def _parse_query_modifiers(self, this: exp.Expr | None) -> exp.Expr | None:  # type: ignore[override]  # it is overloaded by what is parsed
        return this

    def _parse_set_operations(self, this: exp.Expr | None) -> exp.Expr | None:
        return this

    def _parse_table_alias(self, alias_tokens: object = None) -> exp.TableAlias | None:
        return None

    def _is_table_query(self) -> bool:
        return False
