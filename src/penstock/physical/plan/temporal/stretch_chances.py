"""The spec of inclusion records of what a budget keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.expressions.nodes import Expression
from penstock.physical.plan.spec import Parameter, Spec
from penstock.physical.plan.state.state_parts import StateInput, StatePart, slots


@dataclass(frozen=True)
class StretchChancesSpec(Spec):
    """The rows of the first input with their inclusion records, by the thresholds of the operator that drops values,
    which is read in place.

    Args:
        types: of the columns of a row, without the record.
        value: those by whose values it drops.
        buckets: how many thresholds there are.
        reading: the input that is read.
        columns: what is emitted of the rows with their records, None for these themselves.
    """

    reads: ClassVar[bool] = True

    types: tuple[pa.DataType, ...]
    value: tuple[int, ...]
    buckets: int
    reading: int
    columns: tuple[Expression, ...] | None = None

    def reads_port(self, port: int) -> bool:
        return port == self.reading

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "rows that are replaced when a threshold falls"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        yield slots(inputs[0], 2, "rows with inclusion records")
