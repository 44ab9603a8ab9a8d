"""The spec of coalescing periods of one length under a window in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.physical.plan.spec import Parameter, Spec
from penstock.physical.plan.state import TIMES, StateInput, StatePart, all_rows


@dataclass(frozen=True)
class WindowStretchesSpec(Spec):
    """The maximal periods of every value, of elements whose periods have one length and that leave as they came.
    types: of the columns, of which the last two are the period."""

    types: tuple[pa.DataType, ...]

    @property
    def title(self) -> str:
        return "Coalesce"

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "elements of every value in order of time"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        yield all_rows(one, "elements of the window", TIMES + 48)
