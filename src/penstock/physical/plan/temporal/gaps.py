"""The spec of the gaps between stretches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.coalesce import Closing
from penstock.physical.plan.spec import Parameter, Spec
from penstock.physical.plan.state.state_parts import StateInput, StatePart, slots, width


@dataclass(frozen=True)
class GapsSpec(Spec):
    """The gaps between the stretches of the input. types: of its columns; closing, only_ended: as those of the
    algebra's `Gaps`; in_order: whether stretches begin in the order of time and stay."""

    types: tuple[pa.DataType, ...]
    closing: Closing
    only_ended: bool
    in_order: bool

    @property
    def title(self) -> str:
        return "Gaps"

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "the last end of every value" if self.in_order else "stretches of every value in order"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        if self.in_order:
            values = one.values(tuple(range(len(self.types) - 2))) if len(self.types) > 2 else 1.0
            yield StatePart("last ends of every value", values, values * (72 + width(self.types)), made.content)
            return
        yield slots(one, 1, "stretches", 120)
