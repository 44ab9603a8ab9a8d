"""The grammar of CREATE (docs/language.md). A repeated clause, or one with the wrong kind of argument, is P0103."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.algebra.nodes.query import StartMode
from penstock.errors import nearest
from penstock.language.dialect import Fault
from penstock.language.grammar.queries import QueryGrammar
from penstock.language.grammar.tokens import STARTS
from penstock.language.queries import Mark, Name, PlanQuery, QueryTree, ValidClause
from penstock.language.statements import (
    AsOf,
    ColumnDefinition,
    Connector,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateSummary,
    CreateView,
    ErrorPolicy,
    Existence,
    RetainClause,
    StartClause,
    Statement,
    TimestampBy,
    TypeText,
    WrittenOption,
)
from penstock.language.text import TextSpan
from penstock.types import Unit

_SUMMARY = "a summary has a name, a stream and columns whose values are counted: CREATE SUMMARY c ON s (k)"
_CREATABLE = ("STREAM", "RELATION", "VIEW", "QUERY", "SUMMARY", "FUNCTION", "AGGREGATE")
#: How a summary counts.
METHODS = ("COUNTSKETCH", "EXACT")
_STREAM_ONLY = ("slack", "ahead", "retain")


class DeclarationGrammar(QueryGrammar):
    """Parser of CREATE and of the clauses that it shares with other statements."""

    def _continuous_query(self) -> QueryTree:
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

    def _create(self, start: TextSpan) -> Statement:
        existence = Existence.OR_REPLACE if self._take("OR", "REPLACE") else None
        retroactive = self._mark("NON", "RETROACTIVE")
        kind = "RELATION" if retroactive and self._need("RELATION") else self._one_of(_CREATABLE)
        existence = self._if_not_exists(existence)
        name = self._name(f"a name for the {kind.lower()}", hint=_SUMMARY if kind == "SUMMARY" else None)
        if kind in ("FUNCTION", "AGGREGATE"):
            return self._create_function(kind, name, existence, start)
        if kind == "VIEW":
            columns = self._names("a column name") if self._curr.token_type is TokenType.L_PAREN else ()
            self._need("AS")
            return CreateView(name, columns, self._continuous_query(), existence, self._since(start))
        if kind == "QUERY":
            return self._create_query(name, existence, start)
        if kind == "SUMMARY":
            return self._create_summary(name, existence, start)
        return self._create_source(name, kind == "STREAM", retroactive, existence, start)

    def _if_not_exists(self, existence: Existence | None) -> Existence | None:
        """Parse IF NOT EXISTS; a declaration may be called `if` where EXISTS does not follow."""
        at = self._here()
        if not self._take("IF", "NOT", "EXISTS"):
            return existence
        if existence is Existence.OR_REPLACE:
            raise self._misplaced("OR REPLACE and IF NOT EXISTS exclude each other", self._since(at))
        return Existence.IF_NOT_EXISTS

    def _create_query(self, name: Name, existence: Existence | None, start: TextSpan) -> CreateQuery:
        clauses: dict[str, Any] = {}
        while True:
            at = self._here()
            found: dict[str, Any]
            if self._take("INTO"):
                found = {"into": self._connector()}
            elif self._take("WITH"):
                found = {"attributes": self._options()}
            elif begun := self._start_clause():
                found = {"start": begun}
            else:
                break
            if found.keys() & clauses.keys():
                word = self.sql[at.start : at.end].upper()
                raise self._misplaced(f"this {word} clause is repeated", self._since(at))
            clauses |= found
        plan = self._plan()
        if plan is None:
            self._need("AS")
        query = plan or self._continuous_query()
        return CreateQuery(name, query, **clauses, existence=existence, span=self._since(start))

    def _plan(self) -> PlanQuery | None:
        """Parse FROM PLAN with its text; return None if it is not next."""
        start = self._here()
        if not self._take("FROM", "PLAN"):
            return None
        at = self._here()
        if not self._match(TokenType.STRING) and not self._match(TokenType.RAW_STRING):
            self._fail("a plan in quotes, as EXPORT PLAN returns it")
        return PlanQuery(self._prev.text, self._since(at), self._since(start))

    def _create_summary(self, name: Name, existence: Existence | None, start: TextSpan) -> CreateSummary:
        if not self._take("ON"):
            self._fail("ON", hint=_SUMMARY)
        stream = self._name("the name of a stream", hint=_SUMMARY)
        named = f"name the columns whose values are counted: CREATE SUMMARY {name.text} ON {stream.text} (k)"
        if self._curr.token_type is not TokenType.L_PAREN:
            self._fail("'('", hint=named)
        following = self._ahead(1)
        if following is None or following.token_type is TokenType.R_PAREN:
            self._fail("a column name", following, hint=named)
        columns = self._names("a column name")
        levels = self._summary_levels()
        method = self._summary_method() if self._take("USING") else None
        options = self._summary_options() if method and self._curr.token_type is TokenType.L_PAREN else ()
        return CreateSummary(
            name, stream, columns, **levels, method=method, options=options, existence=existence,
            span=self._since(start),
        )  # fmt: skip

    def _summary_method(self) -> str:
        found = self._take_any(*METHODS)
        if found is None:
            text = self._curr.text if self._curr else ""
            counts = "COUNTSKETCH counts in a fixed number of counters, EXACT by value"
            self._fail(" or ".join(METHODS), hint=meant(text, METHODS) or counts)
        return found

    def _summary_options(self) -> tuple[WrittenOption, ...]:
        following = self._ahead(1)
        if following is not None and following.token_type is TokenType.R_PAREN:
            self._fail("an option of the summary", following, hint="leave the parentheses out for the defaults")
        return self._options()

    def _create_function(self, kind: str, name: Name, existence: Existence | None, start: TextSpan) -> CreateFunction:
        parameters: list[TypeText] | None = None
        if self._match(TokenType.L_PAREN):
            parameters = []
            while not self._match(TokenType.R_PAREN):
                parameters.append(self._type())
                if not self._match(TokenType.COMMA) and self._curr.token_type is not TokenType.R_PAREN:
                    self._fail("',' or ')'", hint="parameters are types without names: CREATE FUNCTION f (INT, STRING)")
        returns = self._type() if self._take("RETURNS") else None
        volatile = self._mark("VOLATILE") if kind == "FUNCTION" else None
        self._need("AS")
        at = self._here()
        if not self._match(TokenType.STRING):
            self._fail("'module:name'", hint="AS 'module:name' names a function of a Python module")
        types = None if parameters is None else tuple(parameters)
        body = self._prev.text
        body_span = self._since(at)
        return CreateFunction(
            kind, name, body, types, returns, volatile, existence, body_span, self._since(start)
        )  # fmt: skip

    # --- CREATE STREAM, CREATE RELATION

    def _before_connector(self) -> str | None:
        """Return the hint for a clause of a declaration that stands before its connector."""
        if not (self._at("TIMESTAMP", "BY") or self._at("ORDER", "WITHIN") or self._at("OPERATION", "BY")):
            return None
        return "the connector comes first: CREATE STREAM s (..) FROM FILES (..) TIMESTAMP BY at"

    def _create_source(
        self, name: Name, is_stream: bool, retroactive: Mark | None, existence: Existence | None, start: TextSpan
    ) -> CreateSource:
        columns, key, key_span, period = self._columns()
        if not self._match(TokenType.FROM):
            self._fail("FROM connector (...)", hint=self._before_connector())
        connector = self._connector()
        clauses: dict[str, Any] = {} if period is None else {"valid": period}
        while self._source_clause(clauses, is_stream):
            pass
        if is_stream and key:
            raise self._misplaced("PRIMARY KEY belongs to a relation", key_span)
        return CreateSource(
            name, is_stream, columns, connector, **clauses, primary_key=key, non_retroactive=retroactive,
            existence=existence, key_span=key_span, span=self._since(start),
        )  # fmt: skip

    def _columns(self) -> tuple[tuple[ColumnDefinition, ...], tuple[Name, ...], TextSpan, ValidClause | None]:
        self._need_token(TokenType.L_PAREN, "(")
        columns: list[ColumnDefinition] = []
        key: tuple[Name, ...] = ()
        key_span = self._here()
        period: ValidClause | None = None
        while True:
            at = self._here()
            if self._match(TokenType.PRIMARY_KEY):
                if key:
                    raise self._misplaced("PRIMARY KEY occurs twice", at)
                key = self._names("a column name")
                key_span = self._since(at)
            elif self._take("PERIOD", "FOR", "VALID"):
                if period is not None:
                    raise self._misplaced("PERIOD FOR VALID occurs twice", at, "leave one of them out")
                bounds = self._names("a column name")
                if len(bounds) != 2:
                    raise self._misplaced(
                        "PERIOD FOR VALID takes two columns, a begin and an end",
                        self._since(at),
                        "as in PERIOD FOR VALID (a, b)",
                    )
                period = ValidClause(begin=bounds[0], end=bounds[1], span=self._since(at))
            else:
                columns.append(self._column_definition())
                at = self._here()
                if self._match(TokenType.PRIMARY_KEY):  # of this column alone, as SQL has it
                    if key:
                        several = "a key of several columns is said once, behind them: PRIMARY KEY (a, b)"
                        raise self._misplaced("PRIMARY KEY occurs twice", at, several)
                    key, key_span = (columns[-1].name,), at
            if not self._match(TokenType.COMMA):
                break
        if not self._match(TokenType.R_PAREN):
            self._fail("',' or ')'")
        return tuple(columns), key, key_span, period

    def _column_definition(self) -> ColumnDefinition:
        name = self._name("a column name")
        found = self._type()
        return ColumnDefinition(name, found.text, found.span)

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

    def _source_clause(self, clauses: dict[str, Any], is_stream: bool) -> bool:
        """Parse one trailing clause; return False when there is none."""
        start = self._here()
        found: dict[str, Any]
        if self._take("TIMESTAMP", "BY"):
            found = {"timestamp": self._timestamp(start)}
        elif mark := self._mark("SYSTEM", "TIME"):
            found = {"system_time": mark}
        elif self._take("OPERATION", "BY"):
            found = {"operation": self._name("a column")}
        elif self._take("ORDER", "WITHIN"):
            found = {"slack": self._duration()}
        elif self._take("ADVANCE", "AT", "MOST"):
            duration = self._duration()
            found = {"ahead": duration, "ahead_span": self._since(start)}
        elif self._take("IDLE", "TIMEOUT"):
            duration = self._duration()
            found = {"idle": duration, "idle_span": self._since(start)}
        elif self._take("ON", "ERROR"):
            policy = "DEAD LETTER" if self._take("DEAD", "LETTER") else self._one_of(("FAIL", "SKIP", "DEAD LETTER"))
            found = {"on_error": ErrorPolicy(policy, self._since(start))}
        elif valid := self._valid():
            found = {"valid": valid}
        elif self._take("RETAIN"):
            length = self._duration()
            columns = self._names("a column name") if self._curr.token_type is TokenType.L_PAREN else ()
            found = {"retain": RetainClause(length, columns, self._since(start))}
        else:
            return False
        name = self.sql[start.start : start.end].upper()
        key = next(iter(found))
        if key in clauses:
            raise self._misplaced(f"this {name} clause is repeated", self._since(start))
        if not is_stream and key in _STREAM_ONLY:
            raise self._misplaced("this clause belongs to a stream", self._since(start))
        if is_stream and key == "operation":
            raise self._misplaced("OPERATION BY belongs to a relation", self._since(start))
        clauses.update(found)
        return True

    def _misplaced(self, message: str, span: TextSpan, hint: str | None = None) -> Fault:
        token = Token(TokenType.VAR, self.sql[span.start : span.end], start=span.start, end=span.end - 1)
        return Fault("", token, "P0103", message, hint)

    def _timestamp(self, start: TextSpan) -> TimestampBy:
        column = self._name("a column")
        unit: Unit | None = None
        at = self._here()
        if self._take("UNIT"):
            unit = self._unit()
        return TimestampBy(column, unit, self._since(at), self._since(start))


def meant(found: str, words: tuple[str, ...]) -> str | None:
    """Return the words close to `found` as a hint; the message lists all of them already."""
    hint = nearest(found, words)
    return hint if hint and hint.startswith("did you mean") else None
