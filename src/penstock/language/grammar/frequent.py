"""The grammar of FREQUENT behind GROUP BY (docs/language/aggregates.md)."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.language.grammar.sources import SourceGrammar
from penstock.language.queries import FrequentClause

_ITEMS = "write a whole number: GROUP BY c FREQUENT 10 keeps ten items of each pane"
_ABOVE = "ABOVE 0.05 is a twentieth of the total, ABOVE 100 a count"
_POSSIBLY = "items that may be frequent are OR POSSIBLY: GROUP BY c FREQUENT 10 OR POSSIBLY"


class FrequentGrammar(SourceGrammar):
    """Parser of FREQUENT. `frequent()` parses a clause if there is one."""

    def frequent(self) -> FrequentClause | None:
        """Parse `FREQUENT k [BY agg] [PER ( c, ... )] [ABOVE number] [OR POSSIBLY]`; return None if none is next."""
        start = self._here()
        if not self._take("FREQUENT"):
            return None
        k, _ = self._whole("how many items are kept of each pane, such as FREQUENT 10", hint=_ITEMS)
        by = self._by() if self._take("BY") else None
        per: tuple[exp.Expr, ...] = ()
        if isinstance(by, exp.Per):  # sqlglot reads `f(x) PER (c)` as one expression
            by, per = by.this, tuple(by.expressions)
        elif self._take("PER"):
            per = self._per()
        above = self._number("a fraction such as 0.05, or a count", hint=_ABOVE)[0] if self._take("ABOVE") else None
        if above is not None and self._curr and (self._curr.token_type is TokenType.MOD or self._at("PERCENT")):
            self._fail("", hint="a share is a fraction: ABOVE 0.05 is a twentieth of the total")
        possibly = self._mark("OR", "POSSIBLY")
        if possibly is None and self._at("POSSIBLY"):
            self._fail("OR POSSIBLY", hint=_POSSIBLY)
        return FrequentClause(k, by, per, above, possibly, self._since(start))

    def _by(self) -> exp.Expr:
        by = self._parse_function()
        if by is None:
            self._fail("an aggregate", hint="as in BY SUM(bytes), BY COUNT(x)")
        return by

    def _per(self) -> tuple[exp.Expr, ...]:
        self._need_token(TokenType.L_PAREN, "(")
        found = [self._condition()]
        while self._match(TokenType.COMMA):
            found.append(self._condition())
        self._need_token(TokenType.R_PAREN, ")")
        return tuple(found)
