"""Parsing steps shared by all clauses: words, names, numbers, intervals; and faults that name what was expected."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import nearest
from penstock.language.dialect import ExpressionParser, Fault, token_span
from penstock.language.limits import MAX_NAME
from penstock.language.queries import CONTROL_SCHEMA, Duration, Mark, Name
from penstock.language.text import TextSpan
from penstock.types import Interval, Unit, exact

#: Words that begin a clause, and so are an alias only after AS or in backticks.
CLAUSE_WORDS = frozenset(
    word
    for line in (
        "AS ON USING WHERE GROUP HAVING ORDER LIMIT UNION EXCEPT INTERSECT MINUS JOIN INNER LEFT RIGHT FULL CROSS",
        "OUTER SEMI ANTI NATURAL FROM SELECT SAMPLE RANGE ROWS WINDOW SLIDE SLIDES FREQUENCY INTERNAL PARTITION PIVOT",
        "UNPIVOT LATERAL TABLESAMPLE QUALIFY OFFSET FETCH FOR IN IS NOT AND OR BETWEEN LIKE RLIKE ILIKE SET VALUES",
        "WITH INTO DISTINCT ALL ISTREAM DSTREAM RSTREAM WSTREAM CREATE INSERT DROP CASE WHEN THEN ELSE END DIV ASC",
        "DESC NULLS EXISTS",
    )
    for word in line.split()
)
#: Names that other systems have for the schema of what is declared.
_OWN_SCHEMAS = ("main", "public")
#: What follows START.
STARTS = ("NOW", "WARM", "BEGINNING", "AT")
UNITS = tuple(unit.name for unit in Unit)
_SHORT = {"MILLIS": "MILLISECOND", "MICROS": "MICROSECOND", "M": "MINUTE", "W": "WEEK"}
#: What an instant begins with.
_INSTANTS = frozenset(
    (TokenType.STRING, TokenType.NUMBER, TokenType.DASH, TokenType.TIMESTAMP, TokenType.TIMESTAMPTZ, TokenType.DATE)
)
NAME_TOKENS = ExpressionParser.ID_VAR_TOKENS | {TokenType.IDENTIFIER}


class TokenGrammar(ExpressionParser):
    """Parser of single tokens of one statement. Each method consumes what it names or raises `Fault`; `faults` are
    those after which parsing could continue.
    """

    def reset(self) -> None:
        super().reset()
        self.faults: list[Fault] = []
        #: Whether START and RESET may follow the query that is parsed, and so are no aliases there.
        self._start_follows = False

    def _fail(
        self, expected: str, token: Token | None = None, code: str = "P0101", hint: str | None = None
    ) -> NoReturn:
        raise Fault(expected, token or self._curr or None, code, hint=hint)

    def _reject(
        self, message: str, token: Token | None = None, code: str = "P0101", hint: str | None = None
    ) -> NoReturn:
        raise Fault("", token or self._curr or None, code, message, hint)

    def _misplaced(self, message: str, span: TextSpan, hint: str | None = None) -> Fault:
        token = Token(TokenType.VAR, self.sql[span.start : span.end], start=span.start, end=span.end - 1)
        return Fault("", token, "P0103", message, hint)

    def _ahead(self, steps: int) -> Token | None:
        index = self._index + steps
        return self._tokens[index] if index < self._tokens_size else None

    def _at(self, *words: str) -> bool:
        """Return whether these words are next."""
        # Most often the first one is not.
        return self._curr.text.upper() == words[0] and self._match_text_seq(*words, advance=False)

    def _take(self, *words: str) -> TextSpan | None:
        """Consume these words if they are next; return their span, or None."""
        start = self._curr
        if not self._match_text_seq(*words):
            return None
        return token_span(start).to(token_span(self._prev))

    def _take_any(self, *words: str) -> str | None:
        """Consume the first of these words that is next; return it, or None."""
        for word in words:
            if self._match_text_seq(word):
                return word
        return None

    def _need(self, *words: str) -> TextSpan:
        found = self._take(*words)
        if found is None:
            self._fail(" ".join(words))
        return found

    def _need_token(self, kind: TokenType, shown: str) -> TextSpan:
        if not self._match(kind):
            self._fail(f"'{shown}'")
        return token_span(self._prev)

    def _here(self) -> TextSpan:
        """Return the span of the next token; at the end, the position after the last one."""
        if self._curr:
            return token_span(self._curr)
        end = token_span(self._prev).end if self._prev else 0
        return TextSpan(end, end + 1)

    def _since(self, start: TextSpan) -> TextSpan:
        return TextSpan(start.start, max(start.end, token_span(self._prev).end))

    def _mark(self, *words: str) -> Mark | None:
        span = self._take(*words)
        return None if span is None else Mark(span)

    def _is_name(self) -> bool:
        return self._curr.token_type in NAME_TOKENS

    def _name(self, what: str, hint: str | None = None) -> Name:
        if not self._is_name():
            word = self._curr.text if self._curr else ""
            if word and self._curr.token_type is TokenType.STRING:  # the double quotes of standard SQL
                hint = f"a name is written without quotes or in backticks: `{word.replace('`', '``')}`"
            elif what == "a column name" and word.isidentifier():
                hint = f"{word} is a keyword; in backticks it is a name: `{word}`"
            self._fail(what, hint=hint)
        token = self._curr
        self._advance()
        if not token.text:
            self._reject("this name is empty", token, hint="a name has at least one character")
        if len(token.text) > MAX_NAME:
            message = f"this name has {len(token.text):,} characters, {MAX_NAME:,} are the limit"
            self._reject(message, token, "P0105", hint="choose a shorter name")
        return Name(token.text, token.token_type is TokenType.IDENTIFIER, token_span(token))

    def _source_name(self, what: str) -> Name:
        """Parse the name of a declaration, also `main.name`, or `penstock.name` of a control relation."""
        start = self._here()
        name = self._name(what)
        if self._curr.token_type is not TokenType.DOT:
            return name
        if name.key != CONTROL_SCHEMA and name.key not in _OWN_SCHEMAS:
            hint = (
                f"streams, relations and views are in main, also called public; {CONTROL_SCHEMA} has the control"
                " relations of a server"
            )
            self._reject(f"unknown schema {name.text}", self._prev, "P0201", hint)
        self._advance()
        if name.key in _OWN_SCHEMAS:
            return replace(self._name(what), span=self._since(start))
        part = self._name("the name of a control relation")
        return replace(part, schema=CONTROL_SCHEMA, span=self._since(start))

    def _names(self, what: str) -> tuple[Name, ...]:
        """Parse `( name, ... )`."""
        self._need_token(TokenType.L_PAREN, "(")
        found = [self._name(what)]
        while self._match(TokenType.COMMA):
            found.append(self._name(what))
        self._need_token(TokenType.R_PAREN, ")")
        return tuple(found)

    def _alias(self) -> Name | None:
        """Parse `[AS] name`; return None if there is no alias."""
        if self._at_as_of() or (self._start_follows and self._at_start()):
            return None
        if self._match(TokenType.ALIAS):
            return self._name("an alias")
        if not self._is_name() or (
            self._curr.token_type is not TokenType.IDENTIFIER and self._curr.text.upper() in CLAUSE_WORDS
        ):
            return None
        return self._name("an alias")

    def _at_as_of(self) -> bool:
        """Return whether the AS OF of a one-time query is next: an alias `of` is followed by no instant."""
        following = self._ahead(2)
        return following is not None and following.token_type in _INSTANTS and self._at("AS", "OF")

    def _at_start(self) -> bool:
        """Return whether START with its mode is next, or RESET as the last word."""
        following = self._ahead(1)
        if following is None:
            return self._at("RESET")
        return self._at("START") and following.text.upper() in STARTS

    def _condition(self) -> exp.Expr:
        return self._required(self._parse_disjunction())

    def _number(self, what: str, code: str = "P0101", hint: str | None = None) -> tuple[Fraction, TextSpan]:
        token = self._curr
        if not self._match(TokenType.NUMBER):
            self._fail(what, code=code, hint=hint)
        try:
            return exact(token.text), token_span(token)
        except ValueError:
            self._fail(what, token, code, hint)

    def _whole(self, what: str, code: str = "P0101", hint: str | None = None) -> tuple[int, TextSpan]:
        token = self._curr
        value, span = self._number(what, code, hint)
        if value.denominator != 1:
            self._fail(what, token, code, hint)
        return int(value), span

    def _unit(self) -> Unit:
        token = self._curr
        unit = Unit.parse(token.text) if token else None
        if unit is None:
            meant = unit_hint(token.text if token else "")
            self._fail("a unit of time", code="P0102", hint=meant or "units are " + ", ".join(UNITS))
        self._advance()
        return unit

    def _duration(self) -> Duration:
        """Parse `10 SECOND`, `INTERVAL 10 SECOND`, `INTERVAL '10' SECOND`, `INTERVAL '10 seconds'`."""
        start = self._here()
        quoted = self._match(TokenType.INTERVAL) and self._match(TokenType.STRING)
        if not quoted:
            if self._curr.token_type is TokenType.STRING:
                hint = f"write {self._curr.text} without quotes, or INTERVAL before it"
                self._fail("an interval such as 10 SECOND", code="P0102", hint=hint)
            amount, _ = self._number("an interval such as 10 SECOND", "P0102")
            return Duration(Interval(amount, self._unit()), self._since(start))
        token = self._prev
        found = Interval.parse(token.text if len(token.text.split()) > 1 else f"{token.text} {self._unit().name}")
        if found is None:
            self._fail("an interval such as '10 SECOND'", token, "P0102")
        return Duration(found, self._since(start))


def of_calendar(text: str) -> bool:
    """Return whether a word is a unit of the calendar, whose lengths differ."""
    return text.upper().removesuffix("S") in ("MONTH", "QUARTER", "YEAR")


def unit_hint(text: str) -> str | None:
    """Return the hint for a misspelled or abbreviated unit of time, or one of the calendar."""
    if of_calendar(text):
        return "these have no fixed length: use days, as in 30 DAYS"
    known = _SHORT.get(text.upper())
    hint = f"did you mean {known}?" if known else nearest(text, UNITS)
    return hint if hint is not None and hint.startswith("did you mean") else None
