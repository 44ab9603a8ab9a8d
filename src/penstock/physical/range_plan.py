"""The spec of the operator that cuts the axis of a band join into cells (`lowering/ranges.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.physical.plan import Spec
from penstock.physical.ranges import Span


@dataclass(frozen=True)
class CellsSpec(Spec):
    """Every element once for each cell of `width` that its span reaches into, with two columns more: the cell, and
    whether it is the span's first."""

    span: Span
    width: float

    def describe(self) -> dict[str, str]:
        return {"width": f"{self.width:.15g}"}
