"""The spec of the operator that cuts the axis of a band join into cells (`physical/planning/lowering/ranges.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.physical.plan.plan import PassingSpec
from penstock.physical.planning.ranges import RangeSpan


@dataclass(frozen=True)
class BandPartitionerSpec(PassingSpec):
    """Every element once for each cell of `width` that its span reaches into, with two columns more: the cell, and
    whether it is the span's first."""

    span: RangeSpan
    width: float

    def describe(self) -> dict[str, str]:
        return {"width": f"{self.width:.15g}"}
