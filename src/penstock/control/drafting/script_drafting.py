"""Draft the transaction of a posted script: bind each statement against what was accepted and those before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from penstock.algebra.nodes.query import PlanChoice, Query, Start, StartMode
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.control.drafting.contents import BoundStatement, PostedScript, ScriptMode
from penstock.control.drafting.draft import Draft
from penstock.control.drafting.drafted import DraftContext, Drafted, changes
from penstock.control.drafting.script import placed_at
from penstock.control.drafting.versions import queried
from penstock.control.drafting.whole_catalog import catalog_steps
from penstock.control.engine import Engine
from penstock.control.entities.system import SystemView
from penstock.control.entities.updates import statements_of
from penstock.control.life.due_steps import check_edit
from penstock.control.life.listed_query import declared_queries
from penstock.control.phases import Phase
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import Registry, bind_one, command_of, settings_of
from penstock.control.row_changes import check_changeable
from penstock.control.stored_catalog import StoredObject
from penstock.deep_trees import deep
from penstock.errors import PenstockError, Position, ScriptErrors, ScriptWarning, as_name, first_error, log_internal
from penstock.language.binder.context import BindingFailed
from penstock.language.commands import (
    AlterQuery,
    ChangeSetting,
    Command,
    CreateQueryCommand,
    DeleteRows,
    Pause,
    ReplaceQuery,
    SetAttributes,
    Unchanged,
    UpdateControl,
    UpdateRows,
)
from penstock.language.plan_choices import NO_CHOICES, as_choices, choices_in, merged_choices, normal_choices
from penstock.language.queries import NOWHERE
from penstock.language.statements import CreateQuery, Creation, print_statement
from penstock.language.statements.script import Script
from penstock.physical.execution.progress import timed_sources
from penstock.physical.plan.step_choices import OpenChoice, open_choices
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import Generation, grains_of, plan_part

# --- The choices of a plan that a command sets: whether the plan has them, and in which form they are kept.

#: What can be chosen of a plan, by operator and attribute.
Slots = dict[tuple[str, str], OpenChoice]


def known_choices(command: Command, draft: Draft, engine: Engine) -> Command:
    """Return a command with the choices of a plan that it sets in normal form.

    Raises:
        PenstockError: P0752 for what the plan does not have, P0703 where the plan of a query cannot change while it
            runs.
    """
    if isinstance(command, CreateQueryCommand) and "plan" in command.attributes:
        plan = _normal(command.attributes["plan"], slots_of(command.query, command.attributes["plan"]), command.query)
        return replace(command, attributes={**command.attributes, "plan": plan})
    if not isinstance(command, AlterQuery):
        return command
    action = command.action
    if isinstance(action, ReplaceQuery) and action.query.choices:
        slots = _slots(action.query, action.query.choices)
        chosen = tuple(_checked(one, slots, command.name) for one in action.query.choices)
        return replace(command, action=replace(action, query=replace(action.query, choices=chosen)))
    if isinstance(action, SetAttributes) and "plan" in action.values:
        plan = _of_standing(command.name, action.values["plan"], draft, engine)
        return replace(command, action=SetAttributes({**action.values, "plan": plan}))
    return command


def _of_standing(name: str, text: str, draft: Draft, engine: Engine) -> str:
    one, bound = draft.stored.named(name), draft.bound.queries[name.lower()]
    assert one is not None and one.query is not None, "the binder has found a query"
    if not timed_sources(bound.root):
        message = f"query {name} reads relations that never change: it has answered, and its plan does not run any more"
        raise PenstockError("P0752", message)
    known = {**slots_of(bound, one.wished_plan), **slots_of(bound, merged_choices(one.wished_plan, text))}
    plan = _normal(text, {**known, **_running(one, engine)}, bound)
    if one.query.phase.runs and merged_choices(one.wished_plan, plan) != one.query.answer.plan:
        check_edit(name, bound, one.query, engine.version())
    return plan


def _normal(text: str, slots: Slots, query: Query) -> str:
    if text == NO_CHOICES:
        return text
    data: dict[str, dict[str, str | None]] = {}
    for (operator, attribute), value in choices_in(text).items():
        found = None if value is None else _checked(PlanChoice(operator, attribute, value), slots, query.name).value
        data.setdefault(operator, {})[attribute] = found
    return normal_choices(json.dumps(data, ensure_ascii=False))


def _checked(one: PlanChoice, slots: Mapping[tuple[str, str], OpenChoice], query: str) -> PlanChoice:
    """Return a choice in normal form. Raises PenstockError P0752."""
    slot = slots.get((one.operator, one.attribute))
    if slot is None:
        own = sorted(attribute for operator, attribute in slots if operator == one.operator)
        message = f"the plan of {query} has no operator {one.operator!r}"
        hint = "SELECT plan_key, kind FROM penstock.operators shows those that run"
        if own:
            message = f"operator {one.operator} of the plan of {query} has no {one.attribute} to choose"
            hint = f"what can be chosen of it: {', '.join(own)}"
        raise PenstockError("P0752", message, hint=hint)
    value = slot.normal(one.value)
    if value is None:
        message = f"{one.attribute} of operator {one.operator} of {query} cannot be {one.value!r}"
        raise PenstockError("P0752", message, hint=slot.words)
    return replace(one, value=value)


def slots_of(query: Query, plan: str) -> Slots:
    """Return what can be chosen of the plan of a query under the choices of a text."""
    return _slots(query, as_choices(choices_in(plan)))


@deep
def _slots(query: Query, choices: tuple[PlanChoice, ...]) -> Slots:
    statistics, strategy = Statistics(), Strategy.PATTERN
    root = optimize(query.root, planning=strategy.planning(statistics))
    ready = replace(query, root=root, choices=choices)
    generation = Generation(-1, [ready], statistics, grains_of([ready], statistics, strategy, live=True))
    steps = plan_part(generation, strategy).plan.steps
    return {
        (one.operator, one.attribute): one
        for step in steps
        for one in open_choices(step.choices, step.spec.answered is None)
    }


def _running(one: StoredObject, engine: Engine) -> Slots:
    """Return what can be chosen of the steps of a query that run."""
    figures = engine.figures()
    if figures.run.plan is None or one.query is None:
        return {}
    places = {each.place for each in one.query.computations}
    names = {name for name, place in figures.places.items() if place in places}
    steps = (step for step in figures.run.plan.steps if step.queries & names and step.spec.answered is None)
    return {(each.operator, each.attribute): each for step in steps for each in open_choices(step.choices)}


# --- Warn of what a statement will mean for statements that may follow it.


def foreseen(
    command: Command, draft: Draft, engine: Engine, posted: PostedRows, position: Position | None
) -> tuple[ScriptWarning, ...]:
    """Return the warnings for a command: PAUSE of a query whose RESUME cannot begin with what its windows need.

    Args:
        draft: the declarations before it.
        position: of the statement.
    """
    if position is None or not isinstance(command, AlterQuery) or command.action != Pause(False):
        return ()
    one = draft.stored.named(command.name)
    if one is None or one.query is None or one.query.phase not in (Phase.ANSWERING, Phase.SILENT):
        return ()
    try:
        query = queried(one, one.query.answer, draft.registry, posted)
        obstacles = () if query is None else engine.start_option(query, Start(StartMode.WARM)).obstacles
    except Exception as error:
        # It is paused all the same.
        log_internal(error, f"whether {one.name} can be resumed cannot be found out")
        return ()
    if not obstacles:
        return ()
    name = as_name(one.name)
    hint = (
        f"ALTER QUERY {name} PAUSE WITH STATE keeps its state up to date; RESUME START NOW begins with empty windows, "
        "START WARM WAIT when nothing is missing any more"
    )
    reason = "; ".join(obstacles).removeprefix(f"query {one.name}: ")
    return (ScriptWarning(f"RESUME of {one.name} will be refused: {reason}", position, hint),)


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
