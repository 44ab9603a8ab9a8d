"""The grammar of FROM (docs/language/queries.md): sources with window, SAMPLE and alias, nested queries, joins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import TokenType

from penstock.language.elsewhere import CLAUSES
from penstock.language.grammar.tokens import CLAUSE_WORDS, NAME_TOKENS
from penstock.language.grammar.window_tables import WindowTableGrammar
from penstock.language.hints import SESSION, WINDOW_FUNCTIONS
from penstock.language.places import WINDOW
from penstock.language.queries import (
    SERIES,
    DerivedSource,
    Duration,
    Extent,
    FromSource,
    Item,
    JoinedSource,
    JoinKind,
    Mark,
    Name,
    NamedSource,
    QueryTree,
    SampleClause,
    SelectQuery,
    Star,
    StreamOperator,
    ValidClause,
    WindowClause,
)
from penstock.language.text import TextSpan

T = TypeVar("T")

OPERATOR_WORDS = tuple(operator.value for operator in StreamOperator)
_JOIN_WORDS = (
    "JOIN",
    "INNER",
    "CROSS",
    "LEFT",
    "RIGHT",
    "FULL",
    "SEMI",
    "ANTI",
    "NATURAL",
)
#: Clauses of SQL that CQL lacks; named, for a better message than `unexpected`.
_FOREIGN = (
    ("LATERAL", "VIEW"), ("PIVOT",), ("UNPIVOT",), ("QUALIFY",), ("WINDOW",), ("CLUSTER BY",),
    ("SORT BY",), ("DISTRIBUTE BY",), ("CONNECT BY",),
    ("MATCH_RECOGNIZE", "("), ("FOR", "SYSTEM_TIME"), ("ASOF", "JOIN"), ("ASOF", "LEFT"),
)  # fmt: skip


#: Words that go on behind an alias, beside those of clauses.
_BEHIND_ALIAS = ("VALID", "REPEATABLE", "START", "RESET")


class SourceGrammar(WindowTableGrammar):
    """Parser of FROM. `_from_sources()` parses what follows FROM."""

    @abstractmethod
    def _item(self) -> Item:
        """Parse an item of a list, with its name."""

    @abstractmethod
    def query(self) -> QueryTree:
        """Parse a whole query."""

    def _from_sources(self) -> FromSource:
        start = self._here()
        tree = self._joined()
        while True:
            comma = self._here()
            if not self._match(TokenType.COMMA):
                return tree
            tree = JoinedSource(tree, self._joined_source(), JoinKind.CROSS, kind_span=comma, span=self._since(start))
            tree = self._joins(tree, start)

    def _joined(self) -> FromSource:
        start = self._here()
        return self._joins(self._joined_source(), start)

    def _joins(self, tree: FromSource, start: TextSpan) -> FromSource:
        while any(self._at(word) for word in _JOIN_WORDS):
            tree = self._join(tree, start)
        return tree

    def _join(self, left: FromSource, start: TextSpan) -> JoinedSource:
        at = self._here()
        natural = self._mark("NATURAL")
        word = self._take_any("INNER", "CROSS", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI")
        if word in ("LEFT", "RIGHT", "FULL"):
            word = self._take_any("SEMI", "ANTI") or word
            self._take("OUTER")
        self._need("JOIN")
        kind = JoinKind[word or "INNER"]
        kind_span = self._since(at)
        right = self._joined_source()
        on: exp.Expr | None = None
        using: tuple[Name, ...] = ()
        if kind is not JoinKind.CROSS and natural is None:
            if self._match(TokenType.ON):
                on = self._condition()
            elif self._match(TokenType.USING):
                using = self._names("a column name")
            else:
                self._fail("ON or USING", hint="a join without a condition is written CROSS JOIN")
        return JoinedSource(left, right, kind, on, using, natural, kind_span, self._since(start))

    def _joined_source(self) -> FromSource:
        start = self._here()
        self._refuse_foreign()
        lateral = self._mark("LATERAL")
        if lateral is not None and not (self._curr.token_type is TokenType.L_PAREN and self._query_ahead()):
            self._fail("a query in parentheses")
        if self._match(TokenType.L_PAREN):
            if self._query_ahead():
                tree = self._attempt(self.query, TokenType.R_PAREN)
                if tree is not None:
                    self._refuse_periods()
                    window, sample, alias = self._decorations()
                    self._refuse_periods(listed=alias is None)
                    called, (window, alias) = self._second_alias(window, alias)
                    sample = sample or self.sample()
                    columns = (
                        self._names("a column name") if alias and self._curr.token_type is TokenType.L_PAREN else ()
                    )
                    self._refuse_periods()
                    return DerivedSource(tree, window, alias, columns, called, lateral, sample, span=self._since(start))
            inner = self._from_sources()
            self._need_token(TokenType.R_PAREN, ")")
            return inner
        if (sessions := self._session_table()) is not None:
            return sessions
        if (windows := self._window_table()) is not None:
            window, sample, alias = self._decorations()
            return replace(windows, window=window, sample=sample, alias=alias, span=self._since(start))
        gaps = self._gaps_of()
        name = self._source_name("a stream, relation or view")
        self._refuse_foreign()
        before = self._early_alias()
        if self._curr.token_type is TokenType.L_PAREN and name.key not in SERIES and self._is_function():
            self._reject(
                "a function in FROM is not supported", self._prev, "P0901", _window_hint(self._prev.text) or _ROWS_OF
            )
        items, period = self._coalesced()
        if gaps is not None and items is None:
            hint = f"as in GAPS OF {name.text} (c): of each value of c, when it was not there"
            self._reject("GAPS OF takes a list of columns", code="P0103", hint=hint)
        valid: list[ValidClause] = []
        least: list[Duration] = []
        window, sample, alias = self._decorations(valid, least if gaps is not None else None)
        names_follow = alias is not None and self._curr.token_type is TokenType.L_PAREN
        if items is not None and name.key in SERIES and names_follow:
            series = SelectQuery((Item(Star()),), NamedSource(name, items=items, span=name.span), span=name.span)
            columns = self._names("a column name")
            return DerivedSource(series, window, alias, columns, sample=sample, span=self._since(start))
        if before is not None and (alias is None or alias != before):
            self._fail("FROM, WHERE or the end of the query", token=self._prev, hint=f"write {before.text} once, last")
        return NamedSource(
            name,
            window,
            sample,
            alias,
            items,
            period,
            valid[0] if valid else None,
            gaps,
            least[0] if least else None,
            self._since(start),
        )

    def _gaps_of(self) -> Mark | None:
        """Parse GAPS OF, which a name follows; a stream may be called `gaps`, with the alias `of`."""
        behind = self._ahead(2)
        if behind is None or self._curr.token_type is TokenType.IDENTIFIER or not self._at("GAPS", "OF"):
            return None
        word = behind.text.upper()
        if behind.token_type not in NAME_TOKENS:
            return None
        if behind.token_type is not TokenType.IDENTIFIER and (word in CLAUSE_WORDS or word in _BEHIND_ALIAS):
            return None
        start = self._here()
        self._advance(2)
        return Mark(self._since(start))

    def _early_alias(self) -> Name | None:
        """Parse the alias before a list of columns, which is repeated behind it: `Employee E (Name) AS E`."""
        following = self._ahead(1)
        if (
            following is not None
            and following.token_type is TokenType.L_PAREN
            and self._is_name()
            and self._curr.text.upper() not in CLAUSE_WORDS
        ):
            return self._name("an alias")
        return None

    def _is_function(self) -> bool:
        """Return whether the bracket that is next belongs to a window function of another system, or to a call."""
        argument = self._next.token_type if self._next else None
        return self._prev.text.upper() in WINDOW_FUNCTIONS or argument in (TokenType.NUMBER, TokenType.STRING)

    def _coalesced(self) -> tuple[tuple[Item, ...] | None, Mark | None]:
        """Parse `(c, expression AS d, ...) [(PERIOD)]`, on which a source is coalesced."""
        if not self._match(TokenType.L_PAREN):
            return None, None
        if self._curr.text.upper() in ("RANGE", "ROWS") and self._next and self._next.token_type is TokenType.NUMBER:
            self._reject("a window stands in brackets, [ and ]", self._prev, "P0102", WINDOW)
        items: list[Item] = []
        if not self._match(TokenType.R_PAREN):
            items.append(self._item())
            while self._match(TokenType.COMMA):
                items.append(self._item())
            self._need_token(TokenType.R_PAREN, ")")
        following, behind = self._next, self._ahead(2)
        if (
            self._curr.token_type is TokenType.L_PAREN
            and following.text.upper() == "PERIOD"
            and behind is not None
            and behind.token_type is TokenType.R_PAREN
        ):
            start = self._here()
            self._advance(3)
            return tuple(items), Mark(self._since(start))
        return tuple(items), None

    def _valid(self) -> ValidClause | None:
        """Parse VALID with what follows; return None where VALID is an alias, or not next."""
        if not (self._at("VALID") and self._next and self._next.text.upper() in ("FOR", "FROM", "UNTIL")):
            return None
        start = self._here()
        self._advance()
        if self._take("FOR"):
            return ValidClause(length=self._length(), span=self._since(start))
        if self._match(TokenType.FROM):
            begin = self._name("a column name")
            through = self._mark("THROUGH")
            if through is None and not self._take("TO"):
                self._fail("TO or THROUGH")
            end = self._name("a column name")
            return ValidClause(begin=begin, end=end, through=through, span=self._since(start))
        until = self._here()
        self._advance()
        self._need("NEXT")
        mark = Mark(self._since(until))
        by: list[Name] = []
        if self._take("BY"):
            by.append(self._name("a column name"))
            while self._match(TokenType.COMMA):
                by.append(self._name("a column name"))
        most = self._duration() if self._take("AT", "MOST") else None
        return ValidClause(until_next=mark, by=tuple(by), at_most=most, span=self._since(start))

    def _query_ahead(self, steps: int = 0) -> bool:
        """Return whether a query begins after the opening brackets that are next, or that many tokens ahead."""
        first = steps
        while (token := self._ahead(steps)) is not None and token.token_type is TokenType.L_PAREN:
            steps += 1
        if token is None:
            return False
        if token.token_type in (TokenType.SELECT, TokenType.WITH):
            return True
        if token.token_type is TokenType.FROM:
            # In `TRIM(LEADING FROM a)` and the like FROM begins no query.
            return steps > first or self._opens_before(steps)
        following = self._ahead(steps + 1)
        if self._at_values(steps):
            return True
        return (
            token.text.upper() in OPERATOR_WORDS
            and following is not None
            and (
                following.token_type in (TokenType.L_PAREN, TokenType.SELECT, TokenType.DASH)
                or following.text.upper() == "RESTORE"
            )
        )

    def _opens_before(self, steps: int) -> bool:
        """Return whether a bracket opens, or a statement begins, before the token that many ahead."""
        index = self._index + steps - 1
        return index < 0 or self._tokens[index].token_type is TokenType.L_PAREN

    def _at_values(self, steps: int = 0) -> bool:
        """Return whether VALUES with rows is next, or that many tokens ahead."""
        token, following = self._ahead(steps), self._ahead(steps + 1)
        is_values = token is not None and token.token_type is TokenType.VALUES
        return is_values and following is not None and following.token_type is TokenType.L_PAREN

    def _attempt(self, parse: Callable[[], T], closing: TokenType) -> T | None:
        """Parse with `parse` and then `closing`. Return None, with nothing consumed, when opening brackets made the
        text ambiguous and another reading remains; otherwise raise the fault.
        """
        index = self._index
        ambiguous = self._curr.token_type is TokenType.L_PAREN
        try:
            found = parse()
            self._need_token(closing, ")")
            return found
        except ParseError:
            if not ambiguous:
                raise
            self._retreat(index)
            return None

    def _decorations(
        self, valid: list[ValidClause] | None = None, least: list[Duration] | None = None
    ) -> tuple[WindowClause | None, SampleClause | None, Name | None]:
        """Parse window, SAMPLE, alias and, into the lists, VALID and AT LEAST, in any order."""
        window: WindowClause | None = None
        sample: SampleClause | None = None
        alias: Name | None = None
        while True:
            token = self._curr
            self._refuse_foreign()
            if (found := self.window()) is not None:
                if window is not None:
                    self._reject("a source has one window", token, "P0103")
                window = found
                if found.extent is Extent.SESSION and self._prev.token_type is TokenType.R_BRACKET and self._at("OPEN"):
                    hint = "as in [SESSION 5 MINUTES OPEN]; an alias of that name is written AS open"
                    self._reject("OPEN belongs in the brackets of the session window", code="P0103", hint=hint)
            elif (drawn := self.sample()) is not None:
                if sample is not None:
                    self._reject("SAMPLE occurs twice", token, "P0103", "leave one of them out")
                sample = drawn
            elif valid is not None and (clause := self._valid()) is not None:
                if valid:
                    self._reject("VALID occurs twice", token, "P0103", "leave one of them out")
                valid.append(clause)
            elif least is not None and self._take("AT", "LEAST"):
                if least:
                    self._reject("AT LEAST occurs twice", token, "P0103", "leave one of them out")
                least.append(self._duration())
            elif alias is None and (alias := self._alias()) is not None:
                continue
            else:
                return window, sample, alias

    def _refuse_periods(self, listed: bool = True) -> None:
        """Reject VALID behind a query, and a list of columns where no alias has names."""
        listed = listed and self._curr is not None and self._curr.token_type is TokenType.L_PAREN
        if listed or (self._at("VALID") and self._next and self._next.text.upper() in ("FOR", "FROM", "UNTIL")):
            what = "list of columns" if listed else "VALID clause"
            hint = "name the query: WITH v AS (SELECT ..) SELECT .. FROM v (c) VALID FROM a TO b"
            self._reject(f"a query in FROM takes no {what}", code="P0103", hint=hint)

    def _second_alias(
        self, window: WindowClause | None, alias: Name | None
    ) -> tuple[Name | None, tuple[WindowClause | None, Name | None]]:
        """Parse `AS PulseRate PR [window]`: the name, then the alias; `[csql 6]` writes a whole source after AS."""
        second = self._alias() if alias is not None else None
        if second is None:
            return None, (window, alias)
        if window is None:
            window = self.window()
        return alias, (window, second)

    def _refuse_foreign(self) -> None:
        for words in _FOREIGN:
            if self._at(*words):
                name = " ".join(word for word in words if word != "(")
                hint = _window_hint(name, self._next.text if self._next else "")
                self._reject(f"{name} is not supported", code="P0901", hint=hint or CLAUSES.get(name))


#: Where rows come from that other systems read by a function in FROM.
_ROWS_OF = (
    "rows come from what is declared: CREATE STREAM or CREATE RELATION name (...) FROM FILES (path 'data.csv'), or FROM"
    " MEMORY () and INSERT"
)


def _window_hint(word: str, following: str = "") -> str | None:
    if "SESSION" in (word.upper(), following.upper()):
        return SESSION
    return WINDOW if word.upper() in WINDOW_FUNCTIONS else None
