"""DELETE: rows of a relation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp

from penstock.language.binder.context import Context
from penstock.language.binder.statements.rows import bind_condition, changeable_relation
from penstock.language.commands import DeleteRows
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text, where_text
from penstock.language.queries import Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import Statement


@dataclass(frozen=True)
class DeleteStatement(Statement):
    KIND: ClassVar[str] = "DELETE"
    name: Name
    where: exp.Expr | None = None


def _read(parser: ClauseGrammar, head: Head) -> DeleteStatement:
    parser._need("FROM")
    name = parser._name("the name of a relation")
    return DeleteStatement(name, parser._where())


def _text(statement: DeleteStatement) -> str:
    return f"DELETE FROM {name_text(statement.name)}{where_text(statement.where)}"


def _bind(statement: DeleteStatement, context: Context) -> DeleteRows:
    relation = changeable_relation(statement.name, context)
    if relation.operation is None:
        hint = "declare a STRING column for it, and OPERATION BY"
        context.fail(
            "P0209", f"no row of {relation.name} can be deleted: it has no operation", statement.name.span, hint
        )
    if relation.has_timestamps:
        stamp = relation.shown_timestamp
        hint = "INSERT a row with the operation '-' and its instant, or declare the relation with SYSTEM TIME"
        context.fail(
            "P0209", f"a DELETE has no instant: {relation.name} is stamped by {stamp}", statement.name.span, hint
        )
    return DeleteRows(relation.name, bind_condition(statement.where, relation, context))


DELETE = StatementKind(DeleteStatement, ("DELETE",), _read, _text, _bind, lambda one: "DELETE")
