"""CREATE VIEW: a name for a query that others read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot.tokenizer_core import TokenType

from penstock.errors import counted
from penstock.language.binder.context import Context
from penstock.language.binder.statements.names import distinct_names
from penstock.language.binder.statements.names_read import names_read
from penstock.language.catalog import View
from penstock.language.commands import CreateViewCommand, Unchanged
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import columns_text, print_query
from penstock.language.queries import Name, WholeQuery
from penstock.language.statements.creation import Creation, check_replaceable, create_text, declared_already, read_name
from penstock.language.statements.definitions import check_volatile, root_of
from penstock.language.statements.kind import Head, StatementKind


@dataclass(frozen=True)
class CreateView(Creation):
    KIND: ClassVar[str] = "CREATE VIEW"
    columns: tuple[Name, ...]
    query: WholeQuery

    @property
    def defined_by(self) -> WholeQuery:
        return self.query


def _read(parser: ClauseGrammar, head: Head) -> CreateView:
    name, existence = read_name(parser, head)
    columns = parser._names("a column name") if parser._curr.token_type is TokenType.L_PAREN else ()
    parser._need("AS")
    return CreateView(name, columns, parser._continuous_query(), existence=existence)


def _text(statement: CreateView) -> str:
    head = f"{create_text(statement)}{columns_text(statement.columns)}"
    return f"{head} AS {print_query(statement.query)}"


def _bind(statement: CreateView, context: Context) -> CreateViewCommand | Unchanged:
    unchanged = declared_already(statement, context)
    if unchanged is not None:
        return unchanged
    # A NON RETROACTIVE relation that a view leaves alone is joined by the queries that read the view.
    root = root_of(statement.query, context)
    check_volatile(root, statement.query.span, context)
    names = root.schema.names
    if statement.columns:
        distinct_names(statement.columns, context)
        if len(statement.columns) != len(names):
            span = statement.columns[0].span.to(statement.columns[-1].span)
            context.fail(
                "P0305", f"{counted(len(statement.columns), 'name')} for {counted(len(names), 'column')}", span
            )
        names = tuple(c.text for c in statement.columns)
    view = View(statement.name.text, root, names, context.source.slice(statement.span), context.read_uncoalesced)
    known = context.catalog.views.get(statement.name.key)
    if known is not None and statement.replaces:
        if (known.root.fingerprint, known.names) == (root.fingerprint, names):
            return Unchanged("VIEW", view.name, "the view is the same")
        check_replaceable(statement.name, statement.query, context)
    return CreateViewCommand(view, names_read(statement.query, root), statement.replaces, statement.if_not_exists)


CREATE_VIEW = StatementKind(CreateView, ("CREATE VIEW",), _read, _text, _bind)
