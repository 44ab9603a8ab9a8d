"""Draft the transaction of a posted script: bind each statement against what was accepted and those before it."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.drafting.contents import BoundStatement, PostedScript, ScriptMode
from penstock.control.drafting.drafted import DraftContext, Drafted, changes
from penstock.control.drafting.foreseen import foreseen
from penstock.control.drafting.known_choices import known_choices
from penstock.control.drafting.script import placed_at
from penstock.control.drafting.whole_catalog import catalog_steps
from penstock.control.entities.system import SystemView
from penstock.control.entities.updates import statements_of
from penstock.control.life.listed_query import declared_queries
from penstock.control.registry import Registry, bind_one, command_of, settings_of
from penstock.control.row_changes import check_changeable
from penstock.errors import PenstockError, Position, ScriptErrors, ScriptWarning, first_error
from penstock.language.binder.context import BindingFailed
from penstock.language.commands import (
    ChangeSetting,
    Command,
    CreateQueryCommand,
    DeleteRows,
    Unchanged,
    UpdateControl,
    UpdateRows,
)
from penstock.language.queries import NOWHERE
from penstock.language.statements import CreateQuery, Creation, print_statement
from penstock.language.statements.script import Script


class ScriptDrafting:
    """Drafts one script."""

    def __init__(self, context: DraftContext, posted: PostedScript) -> None:
        self._context = context
        self._posted = posted
        self._draft = context.draft(posted.settings)
        self._bound: list[BoundStatement] = []

    def drafted(self) -> Drafted:
        """Return the transaction of the script. Raises ScriptErrors and PenstockError."""
        if self._posted.mode is ScriptMode.WHOLE:
            self._add_difference()
        else:
            self._add_statements()
        drafted = Drafted.of_statements(self._draft, self._bound, self._posted.commands.rolled_back)
        if self._posted.mode is not ScriptMode.EACH and drafted.changing:
            self._check_results(self._context.ahead(), drafted.changing[0].position)
        return drafted

    def _add_statements(self) -> None:
        context, draft, script = self._context, self._draft, self._posted.commands.script
        before, number = context.ahead(), context.log.next_number
        errors: list[PenstockError] = []
        failed: set[str] = set()
        for statement in script.statements:
            text, position = script.text_of(statement), script.position_of(statement)
            query_text = script.source.slice(statement.query.span) if isinstance(statement, CreateQuery) else ""
            try:
                with placed_at(position):
                    command, warnings = bind_one(
                        statement, draft.stored, draft.bound, settings_of(draft.settings), script.source, failed
                    )
                    warnings += foreseen(command, draft, context.engine, context.posted, position)
                    command = self._add(number, command, text, query_text)
                number += changes(command)
                alone, kind = script.with_only(statement), statement.statement_kind
                self._bound.append(BoundStatement(kind, text, command, warnings, position, alone))
                if self._posted.mode is ScriptMode.EACH and changes(command):
                    self._check_results(before, position)
                    before = draft.registry
                    draft.begin_transaction()
            except (PenstockError, BindingFailed) as error:
                # The statements behind it are read for mistakes of their own.
                if isinstance(error, PenstockError):
                    errors += error.errors if isinstance(error, ScriptErrors) else [error]
                if isinstance(statement, Creation):
                    failed.add(statement.name.key)
        if errors:
            raise ScriptErrors(errors)

    def _add(self, number: int, command: Command, text: str, query_text: str) -> Command:
        """Add a bound statement to the draft; return it, or `Unchanged` where it changes nothing. Raises ScriptErrors
        and PenstockError."""
        context, draft = self._context, self._draft
        context.allow(command, self._posted.who)
        if isinstance(command, UpdateControl):
            if not self._add_update(number, command):
                return Unchanged("RELATION", command.relation, "no value changes")
            return command
        if isinstance(command, ChangeSetting):
            draft.settings = {**draft.settings, command.key.lower(): command.value}
        elif isinstance(command, UpdateRows | DeleteRows):
            check_changeable(draft.bound.sources[command.relation.lower()])
        if changes(command):
            draft.add(number, known_choices(command, draft, context.engine), text, query_text)
        return command

    def _add_update(self, number: int, command: UpdateControl) -> bool:
        """Add the statements that carry out an UPDATE of a control relation, as one command; return whether there are
        any. Raises PenstockError at the place of the UPDATE."""
        context, draft = self._context, self._draft
        registry, engine = draft.registry, context.engine
        settings = settings_of(context.settings_with(registry.stored, {}))
        view = SystemView(
            registry,
            declared_queries(registry),
            engine.version,
            engine.figures,
            context.commands,
            settings,
            context.log.begun,
        )
        statements = statements_of(command, view)
        for statement in statements:
            try:
                one = command_of(Script.made(statement), draft.bound, settings_of(draft.settings))
                context.allow(one, self._posted.who)
                draft.add(number, known_choices(one, draft, engine), print_statement(statement))
            except (ScriptErrors, PenstockError) as error:
                first = first_error(error)
                raise PenstockError(first.code, first.message, command.position, first.hint, first.cause) from None
        return bool(statements)

    def _add_difference(self) -> None:
        """Add what brings the declarations to those of the script. Raises ScriptErrors."""
        context, draft, script = self._context, self._draft, self._posted.commands.script
        settings = draft.settings
        errors: list[PenstockError] = []
        for number, step in enumerate(catalog_steps(script, context.ahead(), settings), context.log.next_number):
            draft.settings = step.settings or settings
            position = None if step.span is None else script.source.position(step.span)
            self._bound.append(BoundStatement(step.kind, step.text, step.command, step.warnings, position))
            try:
                context.allow(step.command, self._posted.who)
                command = known_choices(step.command, draft, context.engine)
                if step.rewords:
                    assert isinstance(command, CreateQueryCommand), "only queries are"
                    draft.reword(command, step.query_text)
                else:
                    draft.add(number, command, step.text, step.query_text)
            except PenstockError as error:
                errors.append(error.at(position))
        if errors:
            raise ScriptErrors(errors)

    def _check_results(self, before: Registry, elsewhere: Position | None) -> None:
        """Raise ScriptErrors P0502 and P0504 for results in wrong places; add the warnings to those of the last
        statement.

        Args:
            before: the declarations before the transaction.
            elsewhere: the place of what has no INTO in the script.
        """
        commands, former, now = self._posted.commands, before.bound, self._draft.bound
        at = commands.source.position
        places = {name: at(span) for name, span in commands.into_spans.items()}
        found = list(
            self._context.results.new_collisions(
                former.queries, now.queries, former.sources, now.sources, places, elsewhere or at(NOWHERE)
            )
        )
        errors = [one for one in found if isinstance(one, PenstockError)]
        if errors:
            raise ScriptErrors(errors)
        if found:
            last = self._bound[-1]
            warnings = tuple(one for one in found if isinstance(one, ScriptWarning))
            self._bound[-1] = replace(last, warnings=last.warnings + warnings)
