"""The grammar of WITH PREFERENCE (docs/language/queries.md)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sqlglot.tokenizer_core import TokenType

from penstock.language.grammar.frequent import FrequentGrammar
from penstock.language.queries import BudgetClause, Duration, PreferenceClause
from penstock.types import Interval

_ORDERS = ("ASC", "DESC", "WEIGHTED")
#: What follows WEIGHTED where it is a column.
_BEHIND_A_COLUMN = ("ASC", "DESC", "FADE", "BUDGET", "WINDOW")
_PREFERRED = "say what comes first: WITH PREFERENCE DESC amount, a column, an expression or an estimate of a summary"
_RANDOM = "WEIGHTED is an order by chance, ASC and DESC go by value: WITH PREFERENCE WEIGHTED amount"
_UNQUOTED = "write a number without quotes: "
_FACTOR = "FADE FACTOR 0.8 PER 10 SECONDS, or FADE FACTOR 80 PERCENT PER 10 SECONDS"
_UNITS = "BUDGET 1000 PER SECOND, BUDGET 5 PER TUPLE, BUDGET AUTO or BUDGET UNLIMITED"


class PreferenceGrammar(FrequentGrammar):
    """Parser of preferences. `preference()` parses a clause if there is one."""

    def preference(self) -> PreferenceClause | None:
        """Parse WITH PREFERENCE with its three clauses, in any order; return None if none is next."""
        start = self._here()
        if not self._take("WITH", "PREFERENCE"):
            return None
        order = self._order_before()
        if order is None and self._at("RANDOM") and self._begins_expression(1):
            self._fail(", ".join(_ORDERS) + " or an expression", hint=_RANDOM)
        self._refuse_none()
        expressions = [self._condition()]
        while self._match(TokenType.COMMA):
            expressions.append(self._condition())
        at = self._here()
        behind = self._take_any(*_ORDERS)
        if behind is not None and order is not None:
            message = f"{order} and {behind}: the order is written once"
            raise self._misplaced(message, at, "write it in front of the expressions, or behind the last of them")
        if behind is not None and self._curr.token_type is TokenType.COMMA:
            hint = f"the order is written once, for the product of all: WITH PREFERENCE {behind} a, b"
            self._fail("FADE, BUDGET, WINDOW or the end", hint=hint)
        clauses: dict[str, Any] = {}
        while True:
            begin = self._here()
            if self._take("FADE"):
                if not self._take("FACTOR"):
                    self._fail("FACTOR", hint=_UNQUOTED + _FACTOR)
                found = self._fade()
            elif self._take("BUDGET"):
                found = {"budget": self._budget()}
            elif self._take("WINDOW"):
                found = {"window": self._duration()}
            else:
                break
            key = next(iter(found))
            if key in clauses:
                raise self._misplaced(f"{key.upper()} occurs twice", self._since(begin), "leave one of them out")
            clauses |= found | {f"{key}_span": self._since(begin)}
        return PreferenceClause(order or behind, tuple(expressions), **clauses, span=self._since(start))

    def _refuse_none(self) -> None:
        """Reject a clause that prefers nothing: one that ends, or goes on with a budget, fade or window."""
        following = self._ahead(1)
        number = following is not None and following.token_type is TokenType.NUMBER
        goes_on = (
            self._at("FADE", "FACTOR")
            or (self._at("WINDOW") and number)
            or (self._at("BUDGET") and (number or self._at("BUDGET", "AUTO") or self._at("BUDGET", "UNLIMITED")))
        )
        if not self._curr or goes_on:
            self._fail("an expression", hint=_PREFERRED)

    def _order_before(self) -> str | None:
        """Parse the order in front of the expressions. WEIGHTED may be a column there."""
        if self._at("WEIGHTED") and not self._begins_expression(1):
            other = self._ahead(1)
            if other is None or other.text.upper() not in _ORDERS or not self._begins_expression(2):
                return None
            message = f"WEIGHTED and {other.text.upper()}: the order is written once"
            self._reject(message, other, hint="leave one of them out")
        return self._take_any(*_ORDERS)

    def _begins_expression(self, offset: int) -> bool:
        """Return whether the token there begins an expression, and is no word of what follows one."""
        token = self._ahead(offset)
        kinds = (
            TokenType.L_PAREN,
            TokenType.NUMBER,
            TokenType.STRING,
            TokenType.HEX_STRING,
            TokenType.CASE,
            TokenType.IDENTIFIER,
            TokenType.PARAMETER,
        )
        return (
            token is not None
            and (token.token_type in kinds or token.token_type in self.ID_VAR_TOKENS)
            and token.text.upper() not in _BEHIND_A_COLUMN
        )

    def _fade(self) -> dict[str, Any]:
        factor = self._signed("a factor such as 0.8, or 80 PERCENT", _FACTOR)
        if self._curr and self._curr.text == "%":
            self._fail("PERCENT", hint=f"FADE FACTOR {float(factor):g} PERCENT")
        if self._take("PERCENT"):
            factor /= 100
        return {"fade": factor, "per": self._per_time() if self._take("PER") else None}

    def _budget(self) -> BudgetClause:
        start = self._here()
        word = self._take_any("AUTO", "UNLIMITED")
        if word is not None:
            return BudgetClause(word, span=self._since(start))
        units = self._signed("a number of units, AUTO or UNLIMITED", _UNITS)
        if units.denominator != 1:
            hint = "a unit is one look-up or one pair: write more of them per a longer interval"
            self._fail("a whole number of units, AUTO or UNLIMITED", self._prev, hint=hint)
        if not self._take("PER"):
            shown = f"BUDGET {units}"
            self._fail("PER", hint=f"say what grants them: {shown} PER SECOND, or {shown} PER TUPLE")
        if self._take("TUPLE"):
            return BudgetClause("PER TUPLE", int(units), span=self._since(start))
        return BudgetClause("PER", int(units), self._per_time(), self._since(start))

    def _per_time(self) -> Duration:
        """Parse `[number] unit`."""
        start = self._here()
        if self._curr.token_type in (TokenType.NUMBER, TokenType.INTERVAL, TokenType.STRING):
            return self._duration()
        return Duration(Interval(Fraction(1), self._unit()), self._since(start))

    def _signed(self, what: str, example: str) -> Fraction:
        sign = -1 if self._match(TokenType.DASH) else 1
        if not self._curr or self._curr.token_type is not TokenType.NUMBER:
            self._fail(what, hint=_UNQUOTED + example)
        return sign * self._number(what, hint=f"as in {example}")[0]
