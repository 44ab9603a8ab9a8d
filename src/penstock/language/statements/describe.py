"""DESCRIBE: one declaration, with its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.errors import nearest
from penstock.expressions.user import signature
from penstock.language.binder.context import Context
from penstock.language.binder.from_.control_names import control_table
from penstock.language.binder.statements.names import declared_name
from penstock.language.commands import Describe
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text
from penstock.language.queries import Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement
from penstock.redaction import redacted_text
from penstock.types import type_name


@dataclass(frozen=True)
class DescribeStatement(Statement):
    """DESCRIBE name."""

    KIND: ClassVar[str] = "DESCRIBE"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    name: Name


def _read(parser: ClauseGrammar, head: Head) -> DescribeStatement:
    return DescribeStatement(parser._source_name("a name"))


def _bind(statement: DescribeStatement, context: Context) -> Describe:
    name, catalog = statement.name, context.catalog
    if name.schema:
        control = control_table(name, context).source
        columns = tuple((f.name, type_name(f.type)) for f in control.columns)
        return Describe(control.name, "STREAM" if control.is_stream else "RELATION", columns)
    kind = catalog.kind(name.key)
    if kind is None:
        user = catalog.function(name.text)
        if user is not None:
            return Describe(user.name, user.kind, (), signature(user))
        if name.key in context.failed:
            context.fail_silently()
        known = (catalog.sources, catalog.views, catalog.queries, catalog.summaries, catalog.functions)
        names = [one.name for table in known for one in table.values()]
        context.check_bound(name)
        context.fail("P0201", f"unknown name {name.text}", name.span, nearest(name.text, names))
    declared = declared_name(name.key, catalog)
    if kind == "QUERY":
        query = catalog.queries[name.key]
        columns = tuple((name, type_name(type_)) for name, type_ in query.selected_columns)
        return Describe(declared, kind, columns, query.text)
    if kind == "SUMMARY":
        return Describe(declared, kind, (), catalog.summaries[name.key].text)
    if kind == "VIEW":
        view = catalog.views[name.key]
        types = (type_name(type_) for type_ in view.root.schema.types)
        return Describe(declared, kind, tuple(zip(view.names, types, strict=True)), redacted_text(view.text))
    source = catalog.sources[name.key]
    columns = tuple((f.name, type_name(f.type)) for f in source.columns)
    return Describe(declared, kind, columns, redacted_text(catalog.texts.get(name.key, "")))


DESCRIBE = StatementKind(DescribeStatement, ("DESCRIBE",), _read, lambda one: f"DESCRIBE {name_text(one.name)}", _bind)
