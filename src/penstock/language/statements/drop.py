"""DROP: what is dropped, and with CASCADE what uses it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import as_name, nearest
from penstock.language.binder.context import Context
from penstock.language.binder.statements.names import an, declared_name
from penstock.language.catalog import Catalog
from penstock.language.commands import DropCommand, Dropped, Unchanged
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import name_text, word_text
from penstock.language.queries import Mark, Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement


@dataclass(frozen=True)
class DropStatement(Statement):
    """kind: STREAM, RELATION, VIEW, QUERY, SUMMARY, FUNCTION or AGGREGATE."""

    kind: str
    name: Name
    if_exists: Mark | None = None
    cascade: Mark | None = None

    @property
    def statement_kind(self) -> str:
        return f"DROP {self.kind}"

    @property
    def role(self) -> AccessRole:
        return AccessRole.ADMIN if self.kind in ("FUNCTION", "AGGREGATE") else AccessRole.CONTROL


def _read(parser: ClauseGrammar, head: Head) -> DropStatement:
    if_exists = parser._mark("IF", "EXISTS")
    name = parser._name("a name", hint=f"say which: DROP {head.word} name")
    return DropStatement(head.word, name, if_exists, parser._mark("CASCADE"))


def _text(statement: DropStatement) -> str:
    exists, cascade = word_text(" IF EXISTS", statement.if_exists), word_text(" CASCADE", statement.cascade)
    return f"DROP {statement.kind}{exists} {name_text(statement.name)}{cascade}"


def _bind(statement: DropStatement, context: Context) -> DropCommand | Unchanged:
    name, kind = statement.name, statement.kind
    if kind in ("FUNCTION", "AGGREGATE"):
        function = context.catalog.functions.get(name.key)
        declared = None if function is None else (function.kind, function.name)
        unknown = "P0204"
    else:
        known_kind = context.catalog.kind(name.key)
        declared = None if known_kind is None else (known_kind, declared_name(name.key, context.catalog))
        unknown = "P0201"
    if declared is None:
        if statement.if_exists:
            return Unchanged(kind, name.text, f"there is no {kind.lower()} {name.text}")
        if name.key in context.failed:
            context.failed.discard(name.key)  # a later statement may declare it again
            context.fail_silently()
        hint = nearest(name.key, _names_of(kind, context.catalog))
        context.fail(unknown, f"unknown {kind.lower()} {name.text}", name.span, hint)
    if declared[0] != kind:
        context.fail(unknown, f"{name.text} is {an(declared[0])}", name.span, f"DROP {declared[0]} {name.text}")
    drops = [*_dependents(name.key, kind, context.catalog), Dropped(kind, declared[1])]
    if len(drops) > 1 and not statement.cascade:
        direct = context.catalog.users_of_function if unknown == "P0204" else context.catalog.resting_on
        hint = f"drop what uses it first, or all of it with DROP {kind} {as_name(name.text)} CASCADE"
        context.fail("P0222", f"{name.text} is used by {', '.join(direct(name.key))}", name.span, hint)
    return DropCommand(kind, declared[1], statement.if_exists is not None, statement.cascade is not None, tuple(drops))


def _dependents(key: str, kind: str, catalog: Catalog) -> list[Dropped]:
    """Return the views, queries and streams that use a declaration, directly or through others, each before what it
    uses."""
    found: dict[str, Dropped] = {}
    is_function = kind in ("FUNCTION", "AGGREGATE")
    todo = [(user, False) for user in (catalog.users_of_function(key) if is_function else catalog.resting_on(key))]
    while todo:
        user, after_its_users = todo.pop()
        if after_its_users:
            found.setdefault(user, Dropped(catalog.kind(user) or "", user))
        elif user not in found:
            todo += [(user, True), *((other, False) for other in catalog.resting_on(user))]
    return list(found.values())


def _names_of(kind: str, catalog: Catalog) -> list[str]:
    if kind in ("FUNCTION", "AGGREGATE"):
        return [user.name for user in catalog.functions.values()]
    names = (*catalog.sources, *catalog.views, *catalog.queries, *catalog.summaries)
    return [key for key in names if catalog.kind(key) == kind]


_DROPPED = ("STREAM", "RELATION", "VIEW", "QUERY", "SUMMARY", "FUNCTION", "AGGREGATE")

DROP = StatementKind(DropStatement, tuple(f"DROP {kind}" for kind in _DROPPED), _read, _text, _bind)
