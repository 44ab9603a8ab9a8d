"""The grammar of the clauses that statements share (docs/language/statements.md).

A repeated clause, or one with the wrong kind of argument, is P0103.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.algebra.nodes.query import StartMode
from penstock.errors import nearest
from penstock.language.clauses import AsOf, Connector, StartClause, TypeText, WrittenOption
from penstock.language.dialect import Fault
from penstock.language.grammar.queries import QueryGrammar
from penstock.language.grammar.tokens import STARTS
from penstock.language.queries import Name, PlanQuery, WholeQuery
from penstock.language.text import TextSpan

_TEXTS = (TokenType.STRING, TokenType.RAW_STRING)


class ClauseGrammar(QueryGrammar):
    """Parser of the clauses that statements share."""

    def expression_alone(self) -> exp.Expr:
        """Parse an expression that nothing follows."""
        node = self._condition()
        if self._curr:
            raise Fault("", self._curr)
        return node

    def _continuous_query(self) -> WholeQuery:
        """Parse a query that is answered at every instant, as text or as a plan."""
        plan = self._plan()
        if plan is not None:
            return plan
        query = self.query()
        if self._at_as_of():
            hint = "a query that is declared is answered at every instant"
            self._reject("AS OF belongs to a SELECT that is a statement of its own", code="P0103", hint=hint)
        return query

    def _as_of(self) -> AsOf | None:
        """Parse AS OF with its instant."""
        start = self._here()
        return self._instant(start) if self._take("AS", "OF") else None

    def _instant(self, start: TextSpan) -> AsOf:
        """Parse an instant: `5`, `'2020-01-01 10:00:00'`, `TIMESTAMP '2020-01-01'`. start: of its clause."""
        if self._curr.token_type in (TokenType.TIMESTAMPTZ, TokenType.TIMESTAMP, TokenType.DATE):
            self._advance()
            if not self._match(TokenType.STRING):
                self._fail("a timestamp such as '2020-01-01 00:00:00'", code="P0102")
            return AsOf(self._prev.text, self._since(start))
        if self._match(TokenType.STRING):
            return AsOf(self._prev.text, self._since(start))
        sign = -1 if self._match(TokenType.DASH) else 1
        tick, _ = self._whole("a timestamp such as '2020-01-01 00:00:00', or a tick", "P0102")
        return AsOf(sign * tick, self._since(start))

    def _one_of(self, words: tuple[str, ...]) -> str:
        found = self._take_any(*words)
        if found is None:
            text = self._curr.text if self._curr else ""
            shown = ", ".join(words[:-1]) + " or " + words[-1]
            self._fail(shown, hint=meant(text, words))
        return found

    def _start_clause(self) -> StartClause | None:
        """Parse START { NOW | WARM [WAIT] | BEGINNING | AT instant }; return None if it is not next."""
        start = self._here()
        if not self._take("START"):
            return None
        mode = StartMode(self._one_of(STARTS))
        at = self._instant(self._here()) if mode is StartMode.AT else None
        wait = self._mark("WAIT") if mode is StartMode.WARM else None
        return StartClause(mode, at, wait, self._since(start))

    def _options(self) -> tuple[WrittenOption, ...]:
        """Parse `( key value, ... )`."""
        self._need_token(TokenType.L_PAREN, "(")
        options = [self._option()]
        while self._match(TokenType.COMMA):
            options.append(self._option())
        if not self._match(TokenType.R_PAREN):
            self._fail("',' or ')'")
        return tuple(options)

    def _plan(self) -> PlanQuery | None:
        """Parse FROM PLAN with its text; return None if it is not next."""
        start = self._here()
        behind = self._ahead(2)
        if behind is not None and self._curr.token_type is TokenType.FROM and behind.token_type not in _TEXTS:
            return None  # a source that is called `plan`
        if not self._take("FROM", "PLAN"):
            return None
        at = self._here()
        if not self._match_set(_TEXTS):
            self._fail("a plan in quotes, as EXPORT PLAN returns it")
        return PlanQuery(self._prev.text, self._since(at), self._since(start))

    def _type(self) -> TypeText:
        start = self._here()
        token = self._curr
        if not token or token.token_type in (TokenType.COMMA, TokenType.R_PAREN):
            self._fail("a type")
        node = self._try_parse(lambda: self._parse_types(schema=True))
        if isinstance(node, exp.DataType) and not isinstance(node.this, str) and not node.is_type("TIME", "TIMETZ"):
            return TypeText(node.sql(dialect=self.dialect), self._since(start))
        if node is None:
            self._advance()  # an unknown type: the binder reports it
        if self._match(TokenType.L_PAREN):
            while self._curr and not self._match(TokenType.R_PAREN):
                self._advance()
        span = self._since(start)
        return TypeText(self.sql[span.start : span.end], span)

    def _connector(self) -> Connector:
        start = self._here()
        name = self._name("a connector")
        if self._curr.token_type is not TokenType.L_PAREN:
            self._fail("'('", hint="a connector has parentheses, as in CONSOLE () or FILES (path 'out', format 'csv')")
        empty = self._ahead(1)
        if empty is not None and empty.token_type is TokenType.R_PAREN:
            self._advance(2)
            return Connector(name, (), self._since(start))
        return Connector(name, self._options(), self._since(start))

    def _option(self) -> WrittenOption:
        start = self._here()
        what = "an option such as path 'data.csv'"
        following = self._next.token_type if self._next else None
        if self._curr.token_type is TokenType.STRING and following in (TokenType.COMMA, TokenType.R_PAREN):
            self._fail(what, hint=f"write the name of the option before its value, for files path '{self._curr.text}'")
        key = self._name(what)
        while self._match(TokenType.DOT):  # settings of a client, such as kafka.security.protocol
            part = self._name("the rest of an option's name")
            key = replace(key, text=f"{key.text}.{part.text}", span=self._since(start))
        self._match(TokenType.EQ)
        if not self._match_set((TokenType.STRING, TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE)):
            self._fail(f"a value for {key.text} in quotes")
        return WrittenOption(key, self._prev.text, TextSpan(self._prev.start, self._prev.end + 1))

    def _where(self) -> exp.Expr | None:
        return self._condition() if self._match(TokenType.WHERE) else None

    def _setting(self) -> tuple[Name, str, TextSpan]:
        """Parse `name = value`, with the rest of the line as the value unless it is a string."""
        start_of_name = self._here()
        name = self._name("a setting")
        while self._match(TokenType.DOT):  # settings of Spark, such as spark.driver.memory
            part = self._name("the rest of a setting's name")
            name = replace(name, text=f"{name.text}.{part.text}", span=self._since(start_of_name))
        if not self._match(TokenType.EQ):
            self._fail("'='")
        at = self._here()
        if not self._curr:
            self._fail("a value")
        quoted = self._curr.token_type is TokenType.STRING
        self._advance()
        if quoted:
            return name, self._prev.text, self._since(at)
        while self._curr and "\n" not in self.sql[self._prev.end + 1 : self._curr.start]:
            self._advance()
        span = self._since(at)
        return name, self.sql[span.start : span.end], span


def meant(found: str, words: tuple[str, ...]) -> str | None:
    """Return the words close to `found` as a hint; the message lists all of them already."""
    hint = nearest(found, words)
    return hint if hint and hint.startswith("did you mean") else None
