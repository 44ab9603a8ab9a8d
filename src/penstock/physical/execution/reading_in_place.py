"""Operators that read the state of their inputs in place, such as windows of several lengths over one store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.physical.operators import Operator
from penstock.physical.plan.plan import Step


def read_in_place(step: Step) -> list[int]:
    """Return the steps whose state `step` reads in place."""
    return [edge.step for port, edge in enumerate(step.inputs) if step.spec.reads_port(port)]


def all_read_in_place(steps: Sequence[Step]) -> set[int]:
    """Return the steps whose state some of `steps` read in place."""
    return {number for step in steps if step.spec.reads for number in read_in_place(step)}


def attach(steps: Sequence[Step], operators: Mapping[int, Operator]) -> None:
    """Attach the operators that read in place to what they read."""
    for step in steps:
        if step.spec.reads:
            operators[step.id].attach([operators[number] for number in read_in_place(step)])


def attach_again(readers: Sequence[Step], changed: Collection[int], operators: Mapping[int, Operator]) -> None:
    """Attach the readers of the steps `changed` anew. A reader attaches to all that it reads at once, so the other
    readers of that attach with it."""
    released, found = set(changed), set[int]()
    while True:
        more = [step for step in readers if step.id not in found and not released.isdisjoint(read_in_place(step))]
        if not more:
            break
        found.update(step.id for step in more)
        released.update(number for step in more for number in read_in_place(step))
    for number in released:
        operators[number].release_readers()
    attach([step for step in readers if step.id in found], operators)
