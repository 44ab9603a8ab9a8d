"""Random choices for a plan: orders of joins, kinds of synopses, steps that are not shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.algebra.nodes.query import PlanChoice
from penstock.physical.plan.plan import Step
from penstock.physical.plan.step_choices import JOIN_ORDER, SHARED, OpenChoice, open_choices, order_text
from penstock.testing.choices import Choices


def random_choices(
    choices: Choices, plan: Callable[[tuple[PlanChoice, ...]], Iterable[Step]]
) -> tuple[PlanChoice, ...]:
    """Return choices of a plan: first orders of joins, then of the steps that these lead to.

    Args:
        plan: returns the steps of the plan under some choices.
    """
    found: tuple[PlanChoice, ...] = ()
    for is_order in (True, False):
        slots = {(one.operator, one.attribute): one for step in plan(found) for one in open_choices(step.choices)}
        picked = [one for one in slots.values() if (one.attribute == JOIN_ORDER) == is_order and choices.chance(60)]
        found += tuple(PlanChoice(one.operator, one.attribute, _value(choices, one)) for one in picked)
    return tuple(sorted(found))


def _value(choices: Choices, one: OpenChoice) -> str:
    if one.attribute == SHARED:
        return choices.pick(("false", "true"))
    if one.attribute == JOIN_ORDER:
        return order_text(_shuffled(choices, one.possible))
    return choices.pick(one.possible)


def _shuffled(choices: Choices, names: Sequence[str]) -> list[str]:
    waiting, order = list(names), []
    while waiting:
        order.append(waiting.pop(choices.integer(0, len(waiting) - 1)))
    return order
