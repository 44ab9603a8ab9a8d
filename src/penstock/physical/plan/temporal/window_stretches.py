"""The spec of coalescing periods of one length under a window in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.coalesce import Closing
from penstock.physical.plan.spec import Parameter, Spec, Ticks
from penstock.physical.plan.state.state_parts import TIMES, StateInput, StatePart, all_rows


@dataclass(frozen=True)
class WindowStretchesSpec(Spec):
    """The maximal periods of every value, of elements whose periods have one length and that leave as they came.
    types: of the columns, of which the last two are the period; closed: when stretches are closed where only closed
    ones are emitted, else None."""

    types: tuple[pa.DataType, ...]
    closed: Closing | None = None

    @property
    def title(self) -> str:
        return "Coalesce"

    def describe(self) -> Mapping[str, Parameter]:
        found: dict[str, Parameter] = {"state": "elements of every value in order of time"}
        if self.closed is not None:
            slide = self.closed.slide
            found["closed at"] = "the end" if slide is None else ("the boundary from the end on, every", Ticks(slide))
        return found

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        yield all_rows(one, "elements of the window", TIMES + 48)
