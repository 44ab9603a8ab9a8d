"""The choices of a plan that a command sets: whether the plan has them, and in which form they are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from penstock.algebra.nodes.query import PlanChoice, Query
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.control.drafting.draft import Draft
from penstock.control.engine import Engine
from penstock.control.life.due_steps import check_edit
from penstock.control.stored_catalog import StoredObject
from penstock.deep import deep
from penstock.errors import PenstockError
from penstock.language.commands import AlterQuery, Command, CreateQueryCommand, ReplaceQuery, SetAttributes
from penstock.language.plan_choices import NO_CHOICES, as_choices, choices_in, merged_choices, normal_choices
from penstock.physical.execution.progress import timed_sources
from penstock.physical.plan.step_choices import OpenChoice, open_choices
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import Generation, grains_of, plan_part

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
    steps = plan_part(generation, strategy)[0].steps
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
