"""The specs of coalescing and of session windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.coalesce import Closing
from penstock.physical.plan.spec import Parameter, Spec, Ticks
from penstock.physical.plan.state import StateInput, StatePart, pending_ends, slots


@dataclass(frozen=True)
class CoalesceSpec(Spec):
    """The maximal periods of every value. types: of the columns, of which the last two are the period; closed: when
    stretches that are told are closed, None where all are told."""

    types: tuple[pa.DataType, ...]
    closed: Closing | None = None
    listed: bool = False

    @property
    def title(self) -> str:
        return "Coalesce"

    def describe(self) -> Mapping[str, Parameter]:
        found: dict[str, Parameter] = {"state": "periods of every value in order"}
        if self.closed is not None:
            slide = self.closed.slide
            found["closed at"] = "the end" if slide is None else ("the boundary from the end on, every", Ticks(slide))
        return found

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        yield slots(one, 3, "different periods", 160)
        yield from pending_ends(one)
