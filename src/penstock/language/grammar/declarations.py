"""The grammar of statements (docs/language.md). A repeated clause, or one with the wrong kind of argument, is P0103."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import nearest
from penstock.language.dialect import Fault
from penstock.language.grammar.queries import QueryGrammar
from penstock.language.queries import Mark, Name, QueryTree
from penstock.language.statements import (
    AsOf,
    ColumnDefinition,
    Connector,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateView,
    DropStatement,
    ErrorPolicy,
    ExplainStatement,
    Insert,
    OneTimeSelect,
    SetSetting,
    ShowStatement,
    Statement,
    TimestampBy,
    TypeText,
    WrittenOption,
)
from penstock.language.text import TextSpan
from penstock.types import Unit

_BEGINNINGS = ("CREATE", "INSERT", "SET", "EXPLAIN", "SHOW", "DROP")
_CREATABLE = ("STREAM", "RELATION", "VIEW", "QUERY", "FUNCTION", "AGGREGATE")
_SHOWN = ("STREAMS", "RELATIONS", "VIEWS", "QUERIES", "FUNCTIONS", "AGGREGATES")
_DROPPED = _CREATABLE
_STREAM_ONLY = ("slack", "ahead", "idle", "system_time")


class CqlParser(QueryGrammar):
    """Parser of statements. `statement()` parses one whole statement, without its semicolon."""

    def statement(self) -> Statement:
        start = self._here()
        if self._take("CREATE"):
            return self._create(start)
        if self._take("INSERT"):
            return self._insert(start)
        if self._take("SET"):
            return self._set(start)
        if self._take("EXPLAIN"):
            analyze = self._mark("ANALYZE")
            return ExplainStatement(self._continuous_query(), analyze, self._since(start))
        if self._take("SHOW"):
            return ShowStatement(self._one_of(_SHOWN), self._since(start))
        if self._take("DROP"):
            return DropStatement(self._one_of(_DROPPED), self._name("a name"), self._since(start))
        if self._query_ahead():
            query = self.query()
            as_of = self._as_of()
            return OneTimeSelect(query, as_of, self._since(start))
        found = self._curr.text
        return self._fail("a statement", hint=_meant(found, (*_BEGINNINGS, "SELECT")))

    def _continuous_query(self) -> QueryTree:
        query = self.query()
        if self._at_as_of():
            hint = "a query that is declared is answered at every instant"
            self._reject("AS OF belongs to a SELECT that is a statement of its own", code="P0103", hint=hint)
        return query

    def _as_of(self) -> AsOf | None:
        """Parse AS OF with its instant: `5`, `'2020-01-01 10:00:00'`, `TIMESTAMP '2020-01-01'`."""
        start = self._here()
        if not self._take("AS", "OF"):
            return None
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
            self._fail(shown, hint=_meant(text, words))
        return found

    def _create(self, start: TextSpan) -> Statement:
        retroactive = self._mark("NON", "RETROACTIVE")
        kind = "RELATION" if retroactive and self._need("RELATION") else self._one_of(_CREATABLE)
        if self._at("IF"):
            self._fail(f"a name for the {kind.lower()}")
        name = self._name(f"a name for the {kind.lower()}")
        if kind in ("FUNCTION", "AGGREGATE"):
            return self._create_function(kind, name, start)
        if kind == "VIEW":
            columns = self._names("a column name") if self._curr.token_type is TokenType.L_PAREN else ()
            self._need("AS")
            return CreateView(name, columns, self._continuous_query(), self._since(start))
        if kind == "QUERY":
            into = self._connector() if self._take("INTO") else None
            self._need("AS")
            return CreateQuery(name, self._continuous_query(), into, self._since(start))
        return self._create_source(name, kind == "STREAM", retroactive, start)

    def _create_function(self, kind: str, name: Name, start: TextSpan) -> CreateFunction:
        parameters: list[TypeText] | None = None
        if self._match(TokenType.L_PAREN):
            parameters = []
            while not self._match(TokenType.R_PAREN):
                parameters.append(self._type())
                if not self._match(TokenType.COMMA) and self._curr.token_type is not TokenType.R_PAREN:
                    self._fail("',' or ')'")
        returns = self._type() if self._take("RETURNS") else None
        volatile = self._mark("VOLATILE") if kind == "FUNCTION" else None
        self._need("AS")
        at = self._here()
        if not self._match(TokenType.STRING):
            self._fail("'module:name'")
        types = None if parameters is None else tuple(parameters)
        body = self._prev.text
        return CreateFunction(kind, name, body, types, returns, volatile, self._since(at), self._since(start))

    # --- CREATE STREAM, CREATE RELATION

    def _create_source(self, name: Name, is_stream: bool, retroactive: Mark | None, start: TextSpan) -> CreateSource:
        columns, key, key_span = self._columns()
        if not self._match(TokenType.FROM):
            self._fail("FROM connector (...)")
        connector = self._connector()
        clauses: dict[str, Any] = {}
        while self._source_clause(clauses, is_stream):
            pass
        if is_stream and key:
            raise self._misplaced("PRIMARY KEY belongs to a relation", key_span)
        return CreateSource(
            name, is_stream, columns, connector, **clauses, primary_key=key, non_retroactive=retroactive,
            key_span=key_span, span=self._since(start),
        )  # fmt: skip

    def _columns(self) -> tuple[tuple[ColumnDefinition, ...], tuple[Name, ...], TextSpan]:
        self._need_token(TokenType.L_PAREN, "(")
        columns: list[ColumnDefinition] = []
        key: tuple[Name, ...] = ()
        key_span = self._here()
        while True:
            at = self._here()
            if self._match(TokenType.PRIMARY_KEY):
                if key:
                    raise self._misplaced("PRIMARY KEY occurs twice", at)
                key = self._names("a column name")
                key_span = self._since(at)
            else:
                columns.append(self._column_definition())
            if not self._match(TokenType.COMMA):
                break
        if not self._match(TokenType.R_PAREN):
            self._fail("',' or ')'")
        return tuple(columns), key, key_span

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
        if isinstance(node, exp.DataType) and not isinstance(node.this, str):
            return TypeText(node.sql(dialect=self.dialect), self._since(start))
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
        self._advance()
        options: list[WrittenOption] = []
        if not self._match(TokenType.R_PAREN):
            options.append(self._option())
            while self._match(TokenType.COMMA):
                options.append(self._option())
            if not self._match(TokenType.R_PAREN):
                self._fail("',' or ')'")
        return Connector(name, tuple(options), self._since(start))

    def _option(self) -> WrittenOption:
        start = self._here()
        key = self._name("an option such as path 'data.csv'")
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

    def _misplaced(self, message: str, span: TextSpan) -> Fault:
        token = Token(TokenType.VAR, self.sql[span.start : span.end], start=span.start, end=span.end - 1)
        return Fault("", token, "P0103", message)

    def _timestamp(self, start: TextSpan) -> TimestampBy:
        column = self._name("a column")
        unit: Unit | None = None
        at = self._here()
        if self._take("UNIT"):
            unit = self._unit()
        return TimestampBy(column, unit, self._since(at), self._since(start))

    # --- the rest

    def _insert(self, start: TextSpan) -> Insert:
        self._need("INTO")
        name = self._name("the name of a stream or relation")
        if self._query_ahead():
            hint = f"a continuous query is CREATE QUERY {name.text} INTO connector (...) AS SELECT ..."
            self._fail("VALUES", hint=hint)
        self._need("VALUES")
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
                return Insert(name, tuple(rows), tuple(spans), self._since(start))

    def _set(self, start: TextSpan) -> SetSetting:
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
            return SetSetting(name, self._prev.text, self._since(at), self._since(start))
        while self._curr and "\n" not in self.sql[self._prev.end + 1 : self._curr.start]:
            self._advance()
        span = self._since(at)
        return SetSetting(name, self.sql[span.start : span.end], span, self._since(start))


def _meant(found: str, words: tuple[str, ...]) -> str | None:
    """Return the words close to `found` as a hint; the message lists all of them already."""
    hint = nearest(found, words)
    return hint if hint and hint.startswith("did you mean") else None
