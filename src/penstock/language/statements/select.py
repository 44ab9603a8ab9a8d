"""SELECT as a statement of its own: a query that is answered once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.algebra.nodes.one_time import ordered
from penstock.language.binder.context import BindingFailed, Context, QueryNames
from penstock.language.binder.inputs.nonretroactive import contents_of_unjoined, refuse_unjoined
from penstock.language.binder.select.queries import QueryBinder
from penstock.language.binder.statements.shedding import with_known_chances
from penstock.language.clauses import AsOf
from penstock.language.commands import SelectOnce
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import as_of_text, print_query
from penstock.language.queries import QueryTree
from penstock.language.statements.definitions import check_volatile, instant
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement
from penstock.redaction import redacted_text
from penstock.types import CALENDAR


@dataclass(frozen=True)
class OneTimeSelect(Statement):
    """A query as a statement of its own: it is answered once, at one instant."""

    KIND: ClassVar[str] = "SELECT"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    query: QueryTree
    as_of: AsOf | None = None


def _read(parser: ClauseGrammar, head: Head) -> OneTimeSelect:
    return OneTimeSelect(parser.query(), parser._as_of())


def _bind(statement: OneTimeSelect, context: Context) -> SelectOnce:
    if context.query_names is QueryNames.REFUSED:
        context.query_names = QueryNames.ANSWER
    root = context.attempt(lambda: QueryBinder(context).relation(statement.query))
    domain = CALENDAR if root is None else root.domain or CALENDAR
    as_of = None if statement.as_of is None else instant(statement.as_of, domain, context)
    if root is None:
        raise BindingFailed
    root = contents_of_unjoined(root)
    refuse_unjoined(root, statement.query.span, context)
    check_volatile(root, statement.query.span, context)
    root = with_known_chances(root, statement.query.span, context)
    text = redacted_text(context.source.slice(statement.span))
    position = context.source.position(statement.span)
    return SelectOnce(ordered("select", root, as_of, text), context.catalog.memory, context.settings, position)


#: It begins as a query does: with SELECT, a bracket, or one of many words.
SELECT = StatementKind(OneTimeSelect, (), _read, lambda one: print_query(one.query) + as_of_text(one.as_of), _bind)
