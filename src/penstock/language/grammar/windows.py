"""The grammar of windows and frequencies (docs/language/windows.md), in every form that the papers use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import nearest
from penstock.language.dialect import Fault
from penstock.language.grammar.tokens import UNITS, TokenGrammar, of_calendar, unit_hint
from penstock.language.queries import Align, Count, Duration, Extent, FrequencyClause, Length, WindowClause
from penstock.language.text import TextSpan
from penstock.types import Unit

_ROW_WORDS = ("ROWS", "ROW", "TUPLES", "TUPLE")
_STARTS = "NOW, RANGE, UNBOUNDED, ROWS, VALID, SESSION, PARTITION BY or FREQUENCY"
_SESSIONS = "it holds the sessions that end at an instant; AT MOST bounds how long they are"


class WindowGrammar(TokenGrammar):
    """Parser of windows. `window()` parses a window if there is one."""

    def window(self) -> WindowClause | None:
        """Parse `[ ... ]`, or `RANGE 15 MINUTE SLIDES 1 MINUTE` without brackets; return None if no window is next."""
        start = self._here()
        if self._match(TokenType.L_BRACKET):
            return replace(self._bracketed(start), span=self._since(start))
        if self._curr is not None and self._curr.token_type is TokenType.PARTITION_BY:
            return self._window_body(start, bracketed=False)
        if self._at("RANGE") or self._at("ROWS"):
            following = self._ahead(1)
            if following and (
                following.token_type in (TokenType.NUMBER, TokenType.INTERVAL) or following.text.upper() == "UNBOUNDED"
            ):
                return self._window_body(start, bracketed=False)
        return None

    def _bracketed(self, start: TextSpan) -> WindowClause:
        """Parse the content of the brackets, and the closing one. A fault in between is recorded, and the rest is
        skipped.
        """
        try:
            spec = self._window_body(start, bracketed=True)
            self._need_token(TokenType.R_BRACKET, "]")
            return spec
        except Fault as fault:
            while self._curr and self._curr.token_type not in (TokenType.R_BRACKET, TokenType.SELECT, TokenType.FROM):
                self._advance()
            if not self._match(TokenType.R_BRACKET):
                raise
            self.faults.append(fault)
            return WindowClause(Extent.UNBOUNDED, lost=True)

    def _window_body(self, start: TextSpan, bracketed: bool) -> WindowClause:
        parts: dict[str, Any] = {}
        if self._at("FREQUENCY"):
            parts["frequency"] = self._frequency()
        if parts and (not self._window_follows() or self._at("FREQUENCY")):
            parts["extent"] = None
        elif self._match(TokenType.PARTITION_BY):
            parts["partition"] = tuple(self._parse_csv(lambda: self._required(self._parse_column())))
            parts |= self._partitioned()
        else:
            parts |= self._extent()
        while self._window_clause(parts, bracketed):
            pass
        return WindowClause(**parts, span=self._since(start))

    def _extent(self) -> dict[str, Any]:
        if self._take("NOW"):
            return {"extent": Extent.NOW}
        if self._take("UNBOUNDED"):
            return {"extent": Extent.UNBOUNDED}
        if self._take("ROWS"):
            return self._rows()
        if self._take("VALID"):
            return {"extent": Extent.VALID}
        if self._take("SESSION"):
            return {"extent": Extent.SESSION, "length": self._length()}
        if self._take_any("RANGE", "WINDOW"):
            if self._take("UNBOUNDED"):
                return {"extent": Extent.UNBOUNDED}
            return {"extent": Extent.RANGE, "length": self._duration_or_count()}
        hint = (
            nearest(self._curr.text, ("NOW", "RANGE", "UNBOUNDED", "ROWS", "VALID", "SESSION", "FREQUENCY"))
            if self._curr
            else None
        )
        close = hint if hint is not None and hint.startswith("did you mean") else None
        word = self._curr.text.upper() if self._curr else ""
        if word in ("SLIDE", "SLIDES", "EVERY"):
            close = "SLIDE stands behind what slides: as in RANGE 10 MINUTES SLIDE 10 MINUTES"
        elif word in ("LAST", "PAST", "FOR", "WITHIN", "INTERVAL"):
            close = "write RANGE for a length of time, ROWS for a number of rows: RANGE 5 MINUTES"
        elif word == "SAMPLE":
            close = "SAMPLE stands behind the brackets: s [RANGE 5 MINUTES] SAMPLE(10) keeps 10 percent"
        if self._curr and self._curr.token_type is TokenType.NUMBER:
            close = "write RANGE for a length of time, ROWS for a number of rows"
        return self._fail(f"a window: {_STARTS}", code="P0102", hint=close)

    def _partitioned(self) -> dict[str, Any]:
        """Parse what follows PARTITION BY: `ROWS n [RANGE i]`, a RANGE alone, or `SESSION g`."""
        if self._take("SESSION"):
            return {"extent": Extent.SESSION, "length": self._length()}
        if self._take("RANGE"):
            if self._take("UNBOUNDED"):
                return {"extent": Extent.UNBOUNDED}
            return {"extent": Extent.RANGE, "length": self._duration()}
        if not self._take("ROWS"):
            self._fail("ROWS, RANGE or SESSION", code="P0102")
        parts = self._rows()
        if self._take("RANGE"):
            parts["span_limit"] = self._duration()
        return parts

    def _rows(self) -> dict[str, Any]:
        if self._take("UNBOUNDED"):
            return {"extent": Extent.UNBOUNDED}
        count, span = self._whole("a number of rows", "P0102")
        if self._curr and Unit.parse(self._curr.text) is not None:
            hint = f"ROWS counts rows; a length of time is RANGE {count} {self._curr.text}"
            self._fail("']'", code="P0102", hint=hint)
        return {"extent": Extent.ROWS, "length": Count(count, span)}

    def _length(self) -> Duration | Length:
        """Parse `10 SECONDS`, `gap SECONDS`, `(a + b) SECONDS`, or one of these without a unit, in ticks."""
        start = self._here()
        following = self._ahead(1)
        if self._curr.token_type is TokenType.INTERVAL or (
            self._curr.token_type is TokenType.NUMBER
            and following is not None
            and (Unit.parse(following.text) or of_calendar(following.text))
        ):
            return self._duration()
        if self._curr.token_type is TokenType.DASH:
            self._reject("a length is positive: at least one tick of time", code="P0102", hint="as in 10 SECONDS")
        if self._curr.token_type is TokenType.PARAMETER:
            self._fail("a length of time such as 10 SECONDS", code="P0102")
        value = self._parse_primary() or self._parse_column()
        if value is None:
            self._fail("a length of time such as 10 SECONDS", code="P0102")
        # A short form, such as s, is an alias here.
        unit = self._unit() if self._curr and self._curr.text.upper().removesuffix("S") in UNITS else None
        return Length(value, unit, self._since(start))

    def _duration_or_count(self) -> Duration | Count:
        following = self._ahead(1)
        if self._curr and self._curr.token_type is TokenType.DASH:
            self._reject("a length is positive: at least 1 tuple, or one tick of time", code="P0102")
        if following and following.text.upper() in _ROW_WORDS:
            start = self._here()
            count, _ = self._whole("a number of rows", "P0102")
            self._advance()
            return Count(count, self._since(start))
        if self._curr and self._curr.token_type is TokenType.NUMBER and following and not Unit.parse(following.text):
            hint = unit_hint(following.text) or "write TUPLES or a unit of time: " + ", ".join(UNITS)
            self._fail("TUPLES or a unit of time", following, "P0102", hint)
        return self._duration()

    def _window_clause(self, parts: dict[str, Any], bracketed: bool) -> bool:
        """Parse one clause after a window's extent; return False when there is none."""
        token, start = self._curr, self._here()
        key: str
        value: object
        if self._take("PRECEDING"):
            key, value = "preceding", None
        elif self._take_any("SLIDE", "SLIDES"):
            if self._at("BY"):
                self._fail("an interval such as 10 SECOND", code="P0102", hint="leave out BY: SLIDE 10 MINUTES")
            key, value = "slide", self._duration_or_count()
        elif self._take("ALIGN"):
            self._need("TO")
            key, value = "align", self._align(start)
        elif bracketed and self._match(TokenType.WHERE):
            key, value = "where", self._condition()
        elif parts.get("extent") is Extent.SESSION and self._take("AT", "MOST"):
            key, value = "at_most", self._duration()
        elif parts.get("extent") is Extent.SESSION and (mark := self._mark("OPEN")):
            key, value = "open", mark
        elif parts.get("extent") is Extent.SESSION and self._match(TokenType.PARTITION_BY):
            key, value = "partition", tuple(self._parse_csv(lambda: self._required(self._parse_column())))
        elif parts.get("extent") is Extent.SESSION and self._take("RANGE"):
            self._reject("a session window takes no RANGE", token, "P0375", _SESSIONS)
        elif mark := self._mark("INTERNAL"):
            key, value = "internal", mark
        elif self._at("FREQUENCY") or (bracketed and self._match(TokenType.COMMA)):
            token = self._curr
            if not self._at("FREQUENCY"):
                hint = "a window has one of RANGE, ROWS, VALID and SESSION; its other parts stand without commas"
                self._fail("FREQUENCY", hint=hint)
            key, value = "frequency", self._frequency()
        else:
            return False
        if key in parts:
            self._reject(f"{token.text.upper()} occurs twice in the window", token, "P0103")
        parts[key] = value
        if key == "preceding":
            parts.pop(key)
        return True

    def _align(self, start: TextSpan) -> Align:
        """Parse a number of ticks, a length, or a timestamp: `5`, `5 MINUTE`, `'2020-01-01'`, `TIMESTAMP
        '2020-01-01'`.
        """
        if self._curr.token_type in (TokenType.TIMESTAMPTZ, TokenType.TIMESTAMP, TokenType.DATE):
            self._advance()
            if not self._match(TokenType.STRING):
                self._fail("a timestamp such as '2020-01-01 00:00:00'", code="P0102")
            return Align(self._prev.text, self._since(start))
        if self._match(TokenType.STRING):
            return Align(self._prev.text, self._since(start))
        sign = -1 if self._match(TokenType.DASH) else 1
        following = self._ahead(1)
        if self._curr.token_type is TokenType.INTERVAL or (following and Unit.parse(following.text)):
            length = self._duration().interval
            return Align(replace(length, amount=sign * length.amount), self._since(start))
        tick, _ = self._whole("a tick, an interval or a timestamp", "P0102")
        return Align(sign * tick, self._since(start))

    def _frequency(self) -> FrequencyClause:
        """Parse `FREQUENCY n TUPLES | t [PARTITIONED BY c, ...]`."""
        start = self._here()
        self._need("FREQUENCY")
        every = self._duration_or_count()
        partition: tuple[exp.Expr, ...] = ()
        if self._match(TokenType.PARTITION_BY):
            columns = [self._required(self._parse_column())]
            # What follows may be the window, as in `[FREQUENCY 2 TUPLES PARTITIONED BY k, RANGE 1 HOUR]`.
            while (
                self._curr and not self._begins_window(self._ahead(1), self._ahead(2)) and self._match(TokenType.COMMA)
            ):
                columns.append(self._required(self._parse_column()))
            partition = tuple(columns)
        return FrequencyClause(every, partition, self._since(start))

    def _window_follows(self) -> bool:
        """Return whether a window follows a frequency; the comma between them may be left out."""
        return bool(self._match(TokenType.COMMA)) or self._begins_window(self._curr, self._ahead(1))

    def _begins_window(self, token: Token | None, following: Token | None) -> bool:
        """Return whether two tokens begin a window, and are no column of that name."""
        if token is None or token.token_type is TokenType.PARTITION_BY:
            return token is not None
        if token.text.upper() not in ("RANGE", "WINDOW", "ROWS") or following is None:
            return False
        kinds = (TokenType.NUMBER, TokenType.INTERVAL, TokenType.DASH)
        return following.token_type in kinds or following.text.upper() == "UNBOUNDED"

    def frequency(self) -> FrequencyClause | None:
        """Parse `[FREQUENCY ...]` after a select list."""
        if not (self._curr.token_type is TokenType.L_BRACKET and self._next.text.upper() == "FREQUENCY"):
            return None
        self._advance()
        found = self._frequency()
        self._need_token(TokenType.R_BRACKET, "]")
        return found
