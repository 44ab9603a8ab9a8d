"""The declarations of a server, as data and bound: what was stored, and what it means to this program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.promised import promises_used
from penstock.algebra.nodes.query import SinkSpec
from penstock.algebra.nodes.scans import declared_sources
from penstock.control.stored_catalog import CatalogChange, Definition, StoredCatalog, StoredObject
from penstock.deep_trees import deep
from penstock.errors import PenstockError, ScriptErrors, ScriptWarning, as_known
from penstock.language.binder.statements.names_read import read_by
from penstock.language.catalog import Catalog, ControlTable, QueryBeside, RegisteredQuery, UnboundDeclaration
from penstock.language.commands import (
    AlterSource,
    Command,
    CreateFunctionCommand,
    CreateQueryCommand,
    CreateSourceCommand,
    CreateSummaryCommand,
    CreateViewCommand,
    DropCommand,
    Dropped,
    Unchanged,
)
from penstock.language.scripts import bind_command
from penstock.language.scripts.parse import parse_script, parse_statements
from penstock.language.statements import CreateSummary, Creation, DropStatement, Statement
from penstock.language.statements.script import Script
from penstock.language.text import SourceText
from penstock.settings import Settings

#: What is bound first: a declaration reads those of kinds before its own, and of its own kind those before it.
DECLARATION_ORDER = {"FUNCTION": 0, "AGGREGATE": 0, "STREAM": 1, "RELATION": 1, "VIEW": 2, "SUMMARY": 2, "QUERY": 3}


@dataclass(frozen=True)
class Registry:
    """The declarations at one moment.

    Args:
        bound: those that this program can bind, with everything that statements are bound against.
        errors: by number, why the others cannot be bound.
        lost: by number of a query, why the one cannot be bound that is to be computed beside it.
    """

    stored: StoredCatalog = field(default_factory=StoredCatalog)
    bound: Catalog = field(default_factory=Catalog)
    errors: dict[int, PenstockError] = field(default_factory=dict)
    lost: dict[int, PenstockError] = field(default_factory=dict)

    def named(self, name: str, kind: str = "") -> StoredObject:
        """Return the declaration of a name that a command refers to."""
        found = self.stored.named(name, kind)
        assert found is not None, "the binder has found it"
        return found

    @property
    def as_wished(self) -> Registry:
        """Return the declarations with queries as they are to be whose place other ones are to take."""
        coming = [one for one, query in self.stored.queries if query.coming and one.name.lower() in self.bound.beside]
        stored = self.stored.changed(CatalogChange(tuple(one.as_wished for one in coming)))
        bound = self.bound
        for one in coming:
            beside = bound.beside[one.name.lower()]
            bound = bound.with_query(beside.query).with_reads(one.name, beside.reads).with_beside(one.name, None)
        return replace(self, stored=stored, bound=bound) if coming else self


@deep
def restored(stored: StoredCatalog, control: Mapping[str, ControlTable] | None = None) -> Registry:
    """Bind a stored catalog; what cannot be bound is left out, with the reason. control: the control relations."""
    catalog = Catalog(control=control or {})
    errors: dict[int, PenstockError] = {}
    lost: dict[int, PenstockError] = {}
    then = EarlierPromises(stored)
    for one in sorted(stored.objects.values(), key=lambda one: DECLARATION_ORDER[one.kind]):
        try:
            catalog = declared(one, catalog, then, beside=False)
        except Exception as error:
            errors[one.id] = as_known(error, f"internal error at {one.name}")
            catalog = catalog.with_unbound(unbound(one, errors[one.id]))
            continue
        try:
            catalog = _with_beside(one, catalog, then)
        except Exception as error:
            lost[one.id] = as_known(error, f"internal error at what is to take the place of {one.name}")
    return Registry(stored, catalog, errors, lost)


def unbound(one: StoredObject, error: PenstockError) -> UnboundDeclaration:
    """Return a stored declaration that cannot be bound."""
    return UnboundDeclaration(one.kind, one.name, one.text, error.code, error.message, one.attributes)


def settings_of(texts: Mapping[str, str]) -> Settings:
    """Return settings as written. Raises PenstockError P0104."""
    settings = Settings()
    for name, value in texts.items():
        settings = settings.with_value(name, value)
    return settings


def registered(one: StoredObject) -> RegisteredQuery:
    """Return what the language knows of a stored query."""
    query = one.query
    assert query is not None, "it is a query"
    return RegisteredQuery(one.text, query.answer.start, one.attributes, one.id, query.status)


#: A definition, and what it is to this program.
Binding = tuple[Definition, QueryBeside]


def rebound(bound: Catalog, one: StoredObject, after: StoredObject, bindings: Sequence[Binding] = ()) -> Catalog:
    """Return a bound catalog in which a query has changed. What it computes is found by its definition.

    Args:
        one, after: the declaration before and after.
        bindings: what is new of what it computes.
    """
    assert one.query is not None and after.query is not None, "it is a query"
    key, beside = one.name.lower(), one.query.beside
    former, coming = bound.registered_query(key), bound.beside.get(key)
    all_known = [*bindings]
    if former is not None:
        all_known.append((one.definition, former))
    if coming is not None and beside is not None and beside.definition is not None:
        all_known.append((beside.definition, coming))
    if after.name.lower() != key:
        bound = bound.without(one.name)
    # What was to take its place may be one that this program cannot bind.
    found = _known(all_known, after.definition) or former
    if found is not None:
        found = _as(found, after)
        bound = bound.with_query(found.query, registered(after))
        if bound.reads.get(after.name.lower()) != found.reads:
            bound = bound.with_reads(after.name, found.reads)
    defined = None if after.query.beside is None else after.query.beside.definition
    hidden = None if defined is None else _known(all_known, defined)
    hidden = None if hidden is None else _as(hidden, after)
    return bound if hidden is bound.beside.get(after.name.lower()) else bound.with_beside(after.name, hidden)


def _known(bindings: Sequence[Binding], definition: Definition) -> QueryBeside | None:
    return next((bound for known, bound in bindings if known == definition), None)


def _as(bound: QueryBeside, one: StoredObject) -> QueryBeside:
    """Return a bound query with the name and sink of a declared one; the same object where it has them. What is chosen
    of its plan is stored with its computation."""
    assert one.query is not None, "it is a query"
    if (bound.query.name, bound.query.sink, bound.query.choices) == (one.name, one.query.sink, ()):
        return bound
    return replace(bound, query=replace(bound.query, name=one.name, sink=one.query.sink, choices=()))


def with_declaration(catalog: Catalog, command: Command, one: StoredObject) -> Catalog:
    """Return a catalog with a new declaration."""
    if isinstance(command, CreateSourceCommand):
        return catalog.with_source(command.source, command.text)
    if isinstance(command, CreateViewCommand):
        return catalog.with_view(command.view).with_reads(command.view.name, command.reads)
    if isinstance(command, CreateFunctionCommand):
        return catalog.with_function(command.function)
    if isinstance(command, CreateSummaryCommand):
        return catalog.with_summary(command.summary)
    assert isinstance(command, CreateQueryCommand) and one.query is not None, "it declares something"
    query = _as(QueryBeside(command.query, command.reads), one).query
    return catalog.with_query(query, registered(one)).with_reads(one.name, command.reads)


def declared(one: StoredObject, catalog: Catalog, then: EarlierPromises, beside: bool = True) -> Catalog:
    """Return `catalog` with a stored declaration.

    Args:
        then: the promises that streams had.
        beside: and with the query that is computed beside it.

    Raises:
        ScriptErrors, PenstockError: it cannot be bound.
    """
    settings = settings_of(dict(one.settings))
    name = quoted(one.name)
    if one.query is not None:
        text = f"CREATE QUERY {name} {_budget_of(one.budget)}AS {one.text}"
        catalog = with_declaration(catalog, command_of(text, then.catalog(catalog, one.since), settings), one)
        return _with_beside(one, catalog, then) if beside else catalog
    # Streams refer to the promises that their parents had when they were declared.
    known = then.sources(catalog, one.id) if one.kind == "STREAM" else catalog
    catalog = with_declaration(catalog, command_of(one.text, known, settings), one)
    if one.kind in ("STREAM", "RELATION") and one.attributes:
        values = ", ".join(f"{key} '{value}'" for key, value in one.attributes.items())
        altered = command_of(f"ALTER {one.kind} {name} SET ({values})", catalog, settings)
        assert isinstance(altered, AlterSource), "it alters a source"
        catalog = catalog.with_source(altered.source, one.text)
    for _, text in one.promises:
        # No query has used what was dropped.
        altered = command_of(text, replace(catalog, queries={}, beside={}), settings)
        assert isinstance(altered, AlterSource), "it alters a source"
        catalog = catalog.with_source(altered.source, one.text)
    return catalog


@dataclass(frozen=True)
class EarlierPromises:
    """The promises that streams had when something was declared."""

    stored: StoredCatalog = field(default_factory=StoredCatalog)

    def catalog(self, catalog: Catalog, number: int) -> Catalog:
        """Return a bound catalog with the promises of streams before a number; views over them are bound again. Raises
        ScriptErrors and PenstockError."""
        changed = self._changed_since(catalog, number)
        return self.with_views_again(self.sources(catalog, number), *changed) if changed else catalog

    def sources(self, catalog: Catalog, number: int) -> Catalog:
        """Return the same where nothing is bound that reads views."""
        for name in self._changed_since(catalog, number):
            one = self.stored.named(name)
            assert one is not None, "it has been found"
            earlier = replace(one, promises=tuple(pair for pair in one.promises if pair[0] < number))
            source = declared(earlier, catalog.without(name), self).sources[name.lower()]
            catalog = catalog.with_source(source, one.text)
        return catalog

    def _changed_since(self, catalog: Catalog, number: int) -> list[str]:
        """Return the streams, declared before a number, whose promises have changed since."""
        return [
            one.name
            for one in self.stored.objects.values()
            if one.promises and one.id < number <= one.promises[-1][0] and one.name.lower() in catalog.sources
        ]

    def with_views_again(self, catalog: Catalog, *streams: str) -> Catalog:
        """Return a catalog in which the views over some streams are bound again. Raises PenstockError P0222 for one
        that rests on a promise that is gone."""
        for name in catalog.views_over(*streams):
            one = self.stored.named(name)
            if one is None:
                continue
            try:
                catalog = declared(one, catalog.without(name), self)
            except ScriptErrors as error:
                message = f"view {name} rests on the constraints of {', '.join(streams)} as they are: {error.message}"
                raise PenstockError("P0222", message, hint=f"drop {name} first") from error
        return catalog


def _with_beside(one: StoredObject, catalog: Catalog, then: EarlierPromises) -> Catalog:
    """Return `catalog` with the query that is computed beside a stored one, where there is one. Raises ScriptErrors and
    PenstockError."""
    beside = None if one.query is None else one.query.beside
    other = None if beside is None else beside.definition
    if other is None:
        return catalog
    text = f"CREATE QUERY {quoted(one.name)} {_budget_of(other.budget)}AS {other.text}"
    known = then.catalog(catalog.without(one.name), other.since)
    command = command_of(text, known, settings_of(dict(other.settings)))
    assert isinstance(command, CreateQueryCommand), "it declares a query"
    return catalog.with_beside(one.name, _as(QueryBeside(command.query, command.reads), one))


def _budget_of(budget: Mapping[str, str]) -> str:
    """Return the WITH clause of the attributes that are part of a query's answer; empty where it has none."""
    own = [f"{key} '{value}'" for key, value in budget.items()]
    return f"WITH ({', '.join(own)}) " if own else ""


def command_of(script: Script | str, catalog: Catalog, settings: Settings) -> Command:
    """Bind a script that is one statement. script: parsed, or its text. Raises ScriptErrors."""
    parsed = parse_script(script) if isinstance(script, str) else script
    (statement,) = parsed.statements
    return bind_command(statement, catalog, settings, parsed.source)[0]


def unused_promises(registry: Registry) -> dict[str, list[tuple[str, str]]]:
    """Return by name the queries that were registered before promises which they would use, each with the streams and
    the names of these."""
    found: dict[str, list[tuple[str, str]]] = {}
    added = {one.name: one.promises[-1][0] for one in registry.stored.objects.values() if one.promises}
    for one, _ in registry.stored.queries if added else ():
        query = registry.bound.queries.get(one.name.lower())
        if query is None or not any(added.get(name, -1) >= one.since for name in declared_sources(query.root)):
            continue
        text = f"CREATE QUERY {quoted(one.name)} {_budget_of(one.budget)}AS {one.text}"
        try:
            command = command_of(text, registry.bound.without(one.name), settings_of(dict(one.settings)))
        except PenstockError:
            # What it reads has changed since: it goes on as it is.
            continue
        assert isinstance(command, CreateQueryCommand), "it declares a query"
        if unused := sorted(promises_used(command.query.root) - promises_used(query.root)):
            found[one.name] = unused
    return found


def queries_over(catalog: Catalog, name: str) -> set[str]:
    """Return the queries that read a declaration, directly or through views."""
    found: set[str] = set()
    waiting, seen = [name], set[str]()
    while waiting:
        for user in catalog.users_of(waiting.pop()):
            if catalog.kind(user) == "QUERY":
                found.add(user)
            elif user not in seen:
                seen.add(user)
                waiting.append(user)
    return found


def bind_one(
    statement: Statement,
    stored: StoredCatalog,
    bound: Catalog,
    settings: Settings,
    source: SourceText,
    failed: Set[str] = frozenset(),
) -> tuple[Command, tuple[ScriptWarning, ...]]:
    """Bind a statement against the declarations; a DROP also of one that cannot be bound. failed: names of those of the
    same script that have failed. Raises ScriptErrors, as `bind_command`."""
    if isinstance(statement, DropStatement):
        is_function = statement.kind in ("FUNCTION", "AGGREGATE")
        one = stored.named(statement.name.text, "FUNCTION" if is_function else "")
        known = bound.functions if is_function else {**bound.sources, **bound.views, **bound.queries, **bound.summaries}
        if one is not None and one.kind == statement.kind and statement.name.key not in known:
            drop = DropCommand(one.kind, one.name, False, statement.cascade is not None, (Dropped(one.kind, one.name),))
            return _with_unbound_users(drop, bound), ()
    command, warnings = bind_command(statement, bound, settings, source, failed)
    if isinstance(command, DropCommand):
        command = _with_unbound_users(command, bound)
    if isinstance(command, CreateQueryCommand) and command.replace and not command.into and _is_same(command, bound):
        return Unchanged("QUERY", command.query.name, "the query is the same"), warnings
    return command, warnings


def _with_unbound_users(drop: DropCommand, bound: Catalog) -> DropCommand:
    """Return a DROP CASCADE with what cannot be bound and names something of it, in FROM or as the stream of a summary;
    any other as it is."""
    found: list[Dropped] = []
    names = {one.name.lower() for one in drop.drops if one.kind not in ("FUNCTION", "AGGREGATE")}
    read = {key: _names_in(one) for key, one in bound.unbound.items()} if drop.cascade else {}
    while users := [key for key in read if key not in names and read[key] & names]:
        names |= set(users)
        found += [Dropped(bound.unbound[key].kind, bound.unbound[key].name) for key in users]
    return replace(drop, drops=(*reversed(found), *drop.drops))


def _names_in(one: UnboundDeclaration) -> frozenset[str]:
    """Return the names, in lower case, that a declaration reads which cannot be bound; none where it has no syntax."""
    text = f"CREATE QUERY {quoted(one.name)} AS {one.text}" if one.kind == "QUERY" else one.text
    statements = parse_statements(SourceText.of(text)).statements
    queries = (each.defined_by for each in statements if isinstance(each, Creation))
    streams = frozenset(each.stream.key for each in statements if isinstance(each, CreateSummary))
    return streams.union(*(read_by(query) for query in queries if query is not None))


def _is_same(command: CreateQueryCommand, bound: Catalog) -> bool:
    """Return whether a query without INTO is declared already: the binder does not know where such a query writes."""
    key = command.query.name.lower()
    query, kept = bound.queries.get(key), bound.registered.get(key)
    if query is None or kept is None or dict(kept.attributes) != dict(command.attributes):
        return False
    return (query.root.fingerprint, query.sink) == (command.query.root.fingerprint, default_sink())


def quoted(name: str) -> str:
    """Return a name as it is written in a statement, whatever its letters."""
    return "`" + name.replace("`", "``") + "`"


def default_sink() -> SinkSpec:
    """Return where a query without INTO writes."""
    from penstock.connectors.sinks import SINKS

    return SinkSpec("RESULTS" if "RESULTS" in SINKS else "MEMORY")
