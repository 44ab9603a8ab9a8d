"""Find the difference between the declarations of a system and a script that has all declarations.

The script is bound against nothing but itself; then each of its declarations is compared with the one that has its
name. What differs is altered where an ALTER does it, otherwise replaced; what is missing is created, what is left over
is dropped. Whether a query is paused, and the rows of relations, are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.control.registry import Registry, command_of, default_sink, quoted, settings_of
from penstock.control.stored_catalog import ObjectKey, StoredObject
from penstock.errors import PenstockError, ScriptErrors, ScriptWarning
from penstock.language.binder.statements.attributes import NONE
from penstock.language.binder.statements.names_read import read_by
from penstock.language.binder.statements.promises import drop_line, promise_line
from penstock.language.catalog import Catalog, called_functions
from penstock.language.commands import (
    AlterQuery,
    AlterSource,
    ChangeSetting,
    Command,
    CreateFunctionCommand,
    CreateQueryCommand,
    CreateSourceCommand,
    CreateSummaryCommand,
    CreateViewCommand,
    DropCommand,
    Dropped,
    SetAttributes,
    applied,
)
from penstock.language.plan_choices import NO_CHOICES, choices_difference
from penstock.language.scripts import bind_command
from penstock.language.statements import (
    AlterSourceStatement,
    CreateQuery,
    CreateSource,
    Creation,
    Existence,
    SetSetting,
    Statement,
)
from penstock.language.statements.script import Script
from penstock.language.statements.values import string_text
from penstock.language.text import SourceText, TextSpan

_FUNCTIONS = ("FUNCTION", "AGGREGATE")
#: Attributes that ALTER changes, and the clauses that declare them.
_CLAUSES = {"retain": "retain", "slack": "slack", "idle_timeout": "idle", "on_error": "on_error"}

DeclaringCommand = (
    CreateFunctionCommand | CreateSourceCommand | CreateSummaryCommand | CreateViewCommand | CreateQueryCommand
)


@dataclass(frozen=True)
class CatalogStep:
    """A command of the difference.

    Args:
        kind, text: of the statement that it is.
        query_text: the query of a CREATE QUERY as written.
        settings: those in force where it is declared, as written.
        span: its place in the script; None for what the script does not have.
        rewords: a query is the same in other words, which are kept; nothing begins anew.
    """

    command: Command
    kind: str
    text: str
    query_text: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[ScriptWarning, ...] = ()
    span: TextSpan | None = None
    rewords: bool = False


@dataclass
class _Target:
    """A declaration of the script. source: as the ALTER statements behind it leave it; altered: what these set;
    promises: those that add and drop constraints, each with the number of declarations before it."""

    statement: Creation
    command: DeclaringCommand
    text: str
    settings: Mapping[str, str]
    warnings: tuple[ScriptWarning, ...]
    source: Source | None = None
    altered: dict[str, str] = field(default_factory=dict)
    promises: list[tuple[int, AlterSource]] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.statement.declares

    @property
    def key(self) -> ObjectKey:
        return ("FUNCTION" if self.statement.is_function else "", self.statement.name.key)

    def step(
        self, command: Command, text: str, query_text: str = "", rewords: bool = False, verb: str = "CREATE"
    ) -> CatalogStep:
        span, kind = self.statement.name.span, f"{verb} {self.kind}"
        return CatalogStep(command, kind, text, query_text, self.settings, self.warnings, span, rewords)


def catalog_steps(script: Script, registry: Registry, settings: Mapping[str, str]) -> list[CatalogStep]:
    """Return the commands that bring the declarations to those of a script, in their order.

    Args:
        registry: the present declarations.
        settings: in force where the script begins, as written.

    Raises:
        ScriptErrors: all mistakes of the script; P0732 for a statement that declares nothing.
    """
    return _Difference(registry, _bound(script, registry.bound, settings), script.source).steps()


def _bound(script: Script, present: Catalog, settings: Mapping[str, str]) -> dict[ObjectKey, _Target]:
    """Return the declarations of a script, in their order. present: has the control relations. Raises ScriptErrors."""
    targets: dict[ObjectKey, _Target] = {}
    catalog, now = Catalog(control=present.control), dict(settings)
    errors, failed = list[PenstockError](), set[str]()
    for statement in script.statements:
        name = getattr(statement, "name", None)
        if isinstance(statement, Creation) and (query := statement.defined_by) is not None and read_by(query) & failed:
            # What it reads is wrong, which is reported there.
            failed.add(statement.name.key)
            continue
        if isinstance(statement, AlterSourceStatement) and statement.name.key in failed:
            continue
        try:
            declares = _declaration(statement)
            command, warnings = bind_command(declares, catalog, settings_of(now), script.source)
            if isinstance(command, ChangeSetting):
                now = {**now, command.key.lower(): command.value}
                continue
            if isinstance(command, AlterSource) and command.promises:
                _refuse_used(command.name, catalog)
                targets["", command.name.lower()].promises.append((len(targets), command))
            catalog = applied(command, catalog)
            if isinstance(command, AlterSource):
                target = targets["", command.name.lower()]
                target.source, target.altered = command.source, {**target.altered, **command.values}
                continue
            assert isinstance(statement, Creation), "nothing else is bound"
            assert isinstance(command, DeclaringCommand), "it declares something"
            source = command.source if isinstance(command, CreateSourceCommand) else None
            if isinstance(command, CreateQueryCommand) and not command.into:
                command = replace(command, query=replace(command.query, sink=default_sink()))
            target = _Target(statement, command, script.text_of(statement), now, warnings, source)
            targets[target.key] = target
        except ScriptErrors as found:
            errors += found.errors
            failed |= {name.key} if name is not None else set()
        except PenstockError as error:
            errors.append(error.at(script.position_of(statement)))
    if errors:
        raise ScriptErrors(errors)
    return targets


def _refuse_used(stream: str, catalog: Catalog) -> None:
    """Raise PenstockError P0732 where something of the script reads a stream whose promises change."""
    users = catalog.users_of(stream)
    if users:
        hint = f"a whole catalog has it before {users[0]}: what it declares stands at once"
        raise PenstockError("P0732", f"{stream} is read before its constraints are whole", hint=hint)


def _declaration(statement: Statement) -> Statement:
    """Return a statement of the script as it is bound there. Raises PenstockError P0732."""
    if isinstance(statement, Creation):
        if statement.existence is Existence.IF_NOT_EXISTS:
            hint = "leave it out: what is there and equal stays as it is"
            raise PenstockError("P0732", "a whole catalog has no IF NOT EXISTS", hint=hint)
        return replace(statement, existence=None)
    if isinstance(statement, SetSetting | AlterSourceStatement):
        return statement
    hint = "a whole catalog has CREATE, SET, and ALTER of a stream or relation; execute other statements by themselves"
    raise PenstockError("P0732", f"{statement.statement_kind} declares nothing", hint=hint)


class _Difference:
    def __init__(self, registry: Registry, targets: Mapping[ObjectKey, _Target], source: SourceText) -> None:
        # A query whose place another one is to take is what it is to be.
        registry = registry.as_wished
        self._bound = registry.bound
        self._targets = targets
        self._source = source
        self._stored = {one.key: one for one in registry.stored.objects.values()}
        #: What is another thing afterwards, or none.
        self._disturbed: set[ObjectKey] = set()
        self._errors: list[PenstockError] = []
        #: Sources that are declared anew, whose constraints are to follow.
        self._anew: list[_Target] = []

    def steps(self) -> list[CatalogStep]:
        """Return the commands. Raises ScriptErrors P0222 for what is in use and cannot change."""
        gone = [one for key, one in self._stored.items() if key not in self._targets and not one.is_temporary]
        self._disturbed |= {one.key for one in gone}
        steps: list[CatalogStep] = []
        for number, target in enumerate(self._targets.values(), 1):
            steps += self._changes(target)
            # What constraints refer to may stand behind their stream.
            changed = [(one, command) for one in self._anew for at, command in one.promises if at == number]
            steps += [one.step(command, command.promises, verb="ALTER") for one, command in changed]
        self._spare_subscriptions()
        if self._errors:
            raise ScriptErrors(self._errors)
        queries = [_dropped(one) for one in gone if one.kind == "QUERY"]
        views = [_dropped(one) for one in reversed(gone) if one.kind in ("VIEW", "SUMMARY")]
        rest = [_dropped(one) for one in gone if one.kind not in ("QUERY", "VIEW", "SUMMARY", *_FUNCTIONS)]
        return [*queries, *steps, *views, *rest, *(_dropped(one) for one in gone if one.kind in _FUNCTIONS)]

    def _spare_subscriptions(self) -> None:
        """Note P0222 for what a query reads that ends with its subscription."""
        for one in self._stored.values():
            if one.is_temporary:
                for key in self._disturbed & {("", read) for read in self._bound.reads.get(one.name.lower(), ())}:
                    message = f"{self._stored[key].name} is read by a subscription" if key in self._stored else ""
                    hint = "SHOW SUBSCRIPTIONS lists them, CANCEL ends one"
                    self._errors.append(PenstockError("P0222", message, hint=hint))

    def _changes(self, target: _Target) -> Iterator[CatalogStep]:
        """Yield what makes a declaration that of the script, where it is not."""
        former = self._stored.get(target.key)
        if former is not None and former.kind != target.kind:
            self._disturbed.add(target.key)
            yield _dropped(former)
            former = None
        if former is None:
            yield from self._created(target)
        elif isinstance(target.command, CreateQueryCommand):
            yield from self._changed_query(target, target.command, former)
        elif isinstance(target.command, CreateSourceCommand):
            yield from self._changed_source(target, target.command, former)
        elif isinstance(target.command, CreateViewCommand):
            view = self._bound.views.get(target.key[1])
            same = view is not None and (view.root.fingerprint, view.names) == (
                target.command.view.root.fingerprint,
                target.command.view.names,
            )
            if not same or self._reads_other(target, target.command.reads):
                yield self._replaced(target, target.command)
        elif isinstance(target.command, CreateSummaryCommand):
            summary = self._bound.summaries.get(target.key[1])
            same_summary = summary is not None and summary.definition == target.command.summary.definition
            if not same_summary or ("", target.command.summary.definition.stream.lower()) in self._disturbed:
                yield self._replaced(target, target.command)
        else:
            function = self._bound.functions.get(target.key[1])
            if function is None or repr(function) != repr(target.command.function):
                yield self._replaced(target, target.command)

    def _created(self, target: _Target) -> Iterator[CatalogStep]:
        command = target.command
        query_text = self._query_text(target) if isinstance(command, CreateQueryCommand) else ""
        yield target.step(replace(command, replace=False), target.text, query_text)
        yield from self._alterations(target, target.altered)
        self._anew.append(target)

    def _replaced(
        self,
        target: _Target,
        command: CreateFunctionCommand | CreateSourceCommand | CreateSummaryCommand | CreateViewCommand,
    ) -> CatalogStep:
        self._disturbed.add(target.key)
        replaces = target.statement.existence is Existence.OR_REPLACE
        text = target.text if replaces else f"CREATE OR REPLACE{target.text[len('CREATE') :]}"
        return target.step(replace(command, replace=True), text)

    def _reads_other(self, target: _Target, reads: frozenset[str]) -> bool:
        """Return whether a view or query reads other names than before, or one that means something else."""
        before = self._bound.reads.get(target.key[1], frozenset())
        return reads != before or any(("", read) in self._disturbed for read in reads) or self._calls_other(target)

    def _calls_other(self, target: _Target) -> bool:
        command = target.command
        root = command.view.root if isinstance(command, CreateViewCommand) else None
        root = command.query.root if isinstance(command, CreateQueryCommand) else root
        return root is not None and any(("FUNCTION", one) in self._disturbed for one in called_functions(root))

    # -- sources -----------------------------------------------------------------------------------------------

    def _changed_source(
        self, target: _Target, command: CreateSourceCommand, former: StoredObject
    ) -> Iterator[CatalogStep]:
        known, declared = self._bound.sources.get(target.key[1]), target.source
        assert declared is not None, "it is a source"
        users = self._bound.users_of(former.name)
        if known is not None and known.retain_columns == declared.retain_columns:
            values = self._values(target, known, declared)
            posted = all(key in ("retain", "rate_limit") for key in values)
            if _altered(known, declared) == declared and (posted or not users):
                yield from self._alterations(target, values)
                yield from self._promises(target, known, declared)
                return
        if known == declared and users:
            message = f"{former.name} is used by {', '.join(users)}, so it cannot retain other columns"
            error = PenstockError("P0222", message, hint="leave out what uses it first, then apply the whole")
            self._errors.append(error.at(self._source.position(target.statement.name.span)))
            return
        yield self._replaced(target, command)
        yield from self._alterations(target, target.altered)
        self._anew.append(target)

    def _values(self, target: _Target, known: Source, declared: Source) -> dict[str, str]:
        """Return the attributes that differ, as ALTER has them."""
        assert isinstance(target.statement, CreateSource), "it is a source"
        fields = {name: (getattr(known, clause), getattr(declared, clause)) for name, clause in _CLAUSES.items()}
        fields["rate_limit"] = (known.option("rate_limit"), declared.option("rate_limit"))
        values: dict[str, str] = {}
        for name, (before, after) in fields.items():
            if before == after:
                continue
            if name in target.altered:
                values[name] = target.altered[name]
            elif name == "rate_limit":
                values[name] = declared.option("rate_limit") or NONE
            elif name == "on_error":
                values[name] = declared.on_error.value.lower()
            else:
                clause = getattr(target.statement, _CLAUSES[name])
                length = clause if clause is None or name != "retain" else clause.length
                values[name] = NONE if length is None else str(length.interval)
        return values

    def _alterations(self, target: _Target, values: Mapping[str, str]) -> Iterator[CatalogStep]:
        if values and target.source is not None:
            name = target.source.name
            command = AlterSource(name, values, target.source)
            text = f"ALTER {target.kind} {quoted(name)} SET ({pairs_text(values)})"
            yield target.step(command, text, verb="ALTER")

    def _promises(self, target: _Target, known: Source, declared: Source) -> Iterator[CatalogStep]:
        """Yield what drops and adds the constraints of a stream that differ. Their order makes no difference."""
        sources = {key[1]: one.source for key, one in self._targets.items() if one.source is not None}
        before, after = ({one.declared: one for one in source.promises} for source in (known, declared))
        lines = [drop_line(known, one.name) for key, one in before.items() if key not in after]
        lines += [promise_line(declared, one, Catalog(sources)) for key, one in after.items() if key not in before]
        bound = self._bound
        for line in lines:
            try:
                command = command_of(line, bound, settings_of(target.settings))
            except ScriptErrors as found:
                self._errors += [error.at(self._source.position(target.statement.name.span)) for error in found.errors]
                return
            bound = applied(command, bound)
            yield target.step(command, line, verb="ALTER")

    # -- queries -----------------------------------------------------------------------------------------------

    def _changed_query(
        self, target: _Target, command: CreateQueryCommand, former: StoredObject
    ) -> Iterator[CatalogStep]:
        known = self._bound.queries.get(target.key[1])
        query, text = command.query, self._query_text(target)
        same = known is not None and (known.root.fingerprint, known.sink) == (query.root.fingerprint, query.sink)
        if not same or known is None or self._calls_other(target):
            if known is not None and _is_other_result(known, query):
                # Its result has other columns: it is another one.
                yield _dropped(former)
                yield target.step(replace(command, replace=False), target.text, text)
                return
            written = isinstance(target.statement, CreateQuery) and target.statement.start is not None
            start = command.start if written else Start(StartMode.WARM)
            yield target.step(replace(command, start=start, replace=True), self._replacing(target), text)
            return
        kept = former.attributes
        removed = kept.keys() - command.attributes.keys()
        if removed or (text != former.text and self._reads_other(target, command.reads)):
            yield target.step(replace(command, replace=True), self._replacing(target), text, rewords=True)
        elif values := {key: value for key, value in command.attributes.items() if kept.get(key) != value}:
            name = former.name
            if "plan" in values:
                values["plan"] = choices_difference(kept.get("plan", NO_CHOICES), values["plan"])
            text = f"ALTER QUERY {quoted(name)} SET ({pairs_text(values)})"
            yield target.step(AlterQuery(name, SetAttributes(values)), text, verb="ALTER")

    def _query_text(self, target: _Target) -> str:
        assert isinstance(target.statement, CreateQuery), "it is a query"
        return self._source.slice(target.statement.query.span)

    def _replacing(self, target: _Target) -> str:
        """Return the statement that changes a query; without START it begins WARM, as ALTER QUERY AS does."""
        statement = target.statement
        assert isinstance(statement, CreateQuery) and isinstance(target.command, CreateQueryCommand), "it is a query"
        parts = [f"CREATE OR REPLACE QUERY {quoted(statement.name.text)}"]
        if statement.into is not None:
            parts.append(f"INTO {self._source.slice(statement.into.span)}")
        parts.append("START WARM" if statement.start is None else self._source.slice(statement.start.span))
        if target.command.attributes:
            parts.append(f"WITH ({pairs_text(target.command.attributes)})")
        return " ".join([*parts, "AS", self._query_text(target)])


def _is_other_result(known: Query, query: Query) -> bool:
    """Return whether the results that a run keeps of a query cannot go on with another one."""
    alike = known.output_schema == query.output_schema and known.domain == query.domain
    return not alike and known.sink == query.sink == default_sink()


def _altered(known: Source, declared: Source) -> Source:
    """Return a source with what ALTER changes as it is in another one."""
    limits = tuple(pair for pair in declared.options if pair[0] == "rate_limit")
    others = tuple(pair for pair in known.options if pair[0] != "rate_limit")
    options = declared.options if sorted((*others, *limits)) == sorted(declared.options) else known.options
    advances = known.idle_advances and declared.idle is not None
    return replace(
        known,
        slack=declared.slack,
        idle=declared.idle,
        idle_advances=advances,
        on_error=declared.on_error,
        options=options,
    )


def _dropped(one: StoredObject) -> CatalogStep:
    command = DropCommand(one.kind, one.name, drops=(Dropped(one.kind, one.name),))
    kind = f"DROP {one.kind}"
    return CatalogStep(command, kind, f"{kind} {quoted(one.name)}")


def pairs_text(values: Mapping[str, str]) -> str:
    """Return names with texts as they are written in WITH, SET and the options of a connector."""
    return ", ".join(
        f"{'.'.join(quoted(part) for part in name.split('.'))} {string_text(value)}" for name, value in values.items()
    )
