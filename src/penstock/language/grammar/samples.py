"""The grammar of SAMPLE and TABLESAMPLE (docs/language/windows.md)."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.language.grammar.windows import WindowGrammar
from penstock.language.queries import SampleClause

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
        if foreign:
            self._take("PERCENT")
        by = self._sampled_by() if not foreign and self._take("BY") else ()
        return number, by, None, (), None

    def _sampled_by(self) -> tuple[exp.Expr, ...]:
        found = [self._required(self._parse_column())]
        while self._match(TokenType.COMMA):
            found.append(self._required(self._parse_column()))
        return tuple(found)
