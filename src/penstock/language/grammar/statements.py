"""The grammar of statements (docs/language.md) that are in no file of their own, but for CREATE."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from penstock.language.dialect import Fault
from penstock.language.grammar.declarations import DeclarationGrammar, meant
from penstock.language.queries import Mark, Name
from penstock.language.statements import (
    AlterAction,
    AlterQueryStatement,
    AlterSourceStatement,
    AlterSystemStatement,
    AsAction,
    AsOf,
    Assignment,
    DeleteStatement,
    DropStatement,
    ExplainStatement,
    Insert,
    IntoAction,
    OneTimeSelect,
    PauseAction,
    RenameAction,
    ResumeAction,
    RowsConfirmed,
    SetAction,
    SetSetting,
    Statement,
    SubscribeStatement,
    SwapAction,
    UpdateStatement,
)
from penstock.language.text import TextSpan

BEGINNINGS = ("CREATE", "INSERT", "SET", "EXPLAIN", "DROP", "ALTER", "UPDATE", "DELETE", "SUBSCRIBE")
_DROPPED = ("STREAM", "RELATION", "VIEW", "QUERY", "SUMMARY", "FUNCTION", "AGGREGATE")
_ALTERED = ("QUERY", "STREAM", "RELATION", "SYSTEM")
_ACTIONS = ("PAUSE", "RESUME", "SET", "RENAME", "INTO", "AS", "FROM", "SWAP")


class CqlParser(DeclarationGrammar):
    """Parser of statements. `statement()` parses one whole statement, without its semicolon."""

    def statement(self, others: tuple[str, ...] = ()) -> Statement:
        """Parse a statement. others: first words of those that are not parsed here, for hints."""
        start = self._here()
        if self._take("CREATE"):
            return self._create(start)
        if self._take("INSERT"):
            return self._insert(start)
        if self._take("SET"):
            return self._set(start)
        if self._take("EXPLAIN"):
            return self._explain(start)
        if self._take("DROP"):
            return self._drop(start)
        if self._take("ALTER"):
            return self._alter(start)
        if self._take("UPDATE"):
            return self._update(start)
        if self._take("DELETE"):
            return self._delete(start)
        if self._take("SUBSCRIBE"):
            return self._subscribe(start)
        if self._query_ahead():
            query = self.query()
            as_of = self._as_of()
            return OneTimeSelect(query, as_of, self._since(start))
        return self._fail("a statement", hint=meant(self._curr.text, (*BEGINNINGS, *others, "SELECT")))

    def expression_alone(self) -> exp.Expr:
        """Parse an expression that nothing follows."""
        node = self._condition()
        if self._curr:
            raise Fault("", self._curr)
        return node

    def _explain(self, start: TextSpan) -> ExplainStatement:
        begin = self._mark("START")
        sharing = None if begin else self._mark("SHARING")
        analyze = None if begin or sharing else self._mark("ANALYZE")
        if self._take("QUERY"):
            name = self._name("the name of a query")
            return ExplainStatement(None, analyze, name, begin, sharing, self._since(start))
        return ExplainStatement(self._continuous_query(), analyze, None, begin, sharing, self._since(start))

    def _drop(self, start: TextSpan) -> DropStatement:
        kind = self._one_of(_DROPPED)
        if_exists = self._mark("IF", "EXISTS")
        name = self._name("a name", hint=f"say which: DROP {kind} name")
        return DropStatement(kind, name, if_exists, self._mark("CASCADE"), self._since(start))

    # --- ALTER

    def _alter(self, start: TextSpan) -> Statement:
        kind = self._one_of(_ALTERED)
        if kind == "SYSTEM":
            self._need("SET")
            name, value, span = self._setting()
            return AlterSystemStatement(name, value, span, self._since(start))
        name = self._name(f"the name of a {kind.lower()}")
        if kind == "QUERY":
            return AlterQueryStatement(name, self._action(), self._since(start))
        self._need("SET")
        return AlterSourceStatement(kind, name, self._options(), self._since(start))

    def _action(self) -> AlterAction:
        plan = self._plan()
        if plan is not None:
            return AsAction(plan, self._start_clause(), self._mark("RESET"))
        word = self._one_of(_ACTIONS)
        if word == "PAUSE":
            return PauseAction(self._mark("WITH", "STATE"))
        if word == "RESUME":
            return ResumeAction(self._start_clause(), self._mark("RESET"))
        if word == "SET":
            return SetAction(self._options())
        if word == "RENAME":
            self._need("TO")
            return RenameAction(self._name("a name for the query"))
        if word == "INTO":
            return IntoAction(self._connector())
        if word == "FROM":
            self._fail("PLAN")
        if word == "AS":
            self._start_follows = True
            return AsAction(self._continuous_query(), self._start_clause(), self._mark("RESET"))
        self._need("WITH")
        return SwapAction(self._name("the name of a query"))

    # --- rows

    def _insert(self, start: TextSpan) -> Insert:
        self._need("INTO")
        name = self._name("the name of a stream or relation")
        if self._query_ahead() and not self._at_values():
            hint = f"a continuous query is CREATE QUERY {name.text} INTO connector (...) AS SELECT ..."
            self._fail("VALUES", hint=hint)
        columns = self._names("a column name") if self._curr.token_type is TokenType.L_PAREN else ()
        self._need("VALUES")
        rows, spans = self._value_rows()
        return Insert(name, rows, columns, spans, self._since(start))

    def _update(self, start: TextSpan) -> UpdateStatement:
        name = self._source_name("the name of a relation")
        self._need("SET")
        assignments = [self._assignment()]
        while self._match(TokenType.COMMA):
            assignments.append(self._assignment())
        where = self._where()
        return UpdateStatement(name, tuple(assignments), where, self._confirmed(), self._since(start))

    def _confirmed(self) -> RowsConfirmed | None:
        """Parse [CONFIRM n ROWS]."""
        at = self._here()
        if not self._take("CONFIRM"):
            return None
        number, _ = self._whole("the number of rows")
        if not self._take("ROW"):
            self._need("ROWS")
        return RowsConfirmed(number, self._since(at))

    def _assignment(self) -> Assignment:
        start = self._here()
        column = self._name("a column name")
        self._need_token(TokenType.EQ, "=")
        return Assignment(column, self._condition(), self._since(start))

    def _delete(self, start: TextSpan) -> DeleteStatement:
        self._need("FROM")
        name = self._name("the name of a relation")
        return DeleteStatement(name, self._where(), self._since(start))

    def _where(self) -> exp.Expr | None:
        return self._condition() if self._match(TokenType.WHERE) else None

    # --- reading

    def _subscribe(self, start: TextSpan) -> SubscribeStatement:
        if not self._take("TO"):
            self._fail("TO", hint="the statement is SUBSCRIBE TO, and the name of a query or a query in parentheses")
        name: Name | None = None
        query = None
        if self._match(TokenType.L_PAREN):
            query = self._continuous_query()
            self._need_token(TokenType.R_PAREN, ")")
        else:
            name = self._name("the name of a query, or a query in parentheses")
        snapshot, progress = self._shape()
        as_of = self._as_of()
        at = self._here()
        up_to: AsOf | None = self._instant(at) if self._take("UP", "TO") else None
        return SubscribeStatement(name, query, snapshot, progress, as_of, up_to, self._since(start))

    def _shape(self) -> tuple[Mark | None, Mark | None]:
        """Parse [WITH (SNAPSHOT, PROGRESS)], in any order."""
        if not self._take("WITH"):
            return None, None
        self._need_token(TokenType.L_PAREN, "(")
        found: dict[str, Mark] = {}
        while True:
            at = self._here()
            word = self._one_of(("SNAPSHOT", "PROGRESS"))
            if word in found:
                raise self._misplaced(f"{word} is repeated", at)
            found[word] = Mark(at)
            if not self._match(TokenType.COMMA):
                break
        if not self._match(TokenType.R_PAREN):
            self._fail("',' or ')'")
        return found.get("SNAPSHOT"), found.get("PROGRESS")

    # --- settings

    def _set(self, start: TextSpan) -> SetSetting:
        name, value, span = self._setting()
        return SetSetting(name, value, span, self._since(start))

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
