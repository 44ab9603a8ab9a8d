"""The spec of windows in time that move by rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.physical.plan.plan import Spec


@dataclass(frozen=True)
class StepWindowSpec(Spec):
    """A window in time of `length` ticks (None: unbounded) that moves when `step` more elements have arrived. arrival:
    as for `RowWindowSpec`."""

    types: tuple[pa.DataType, ...]
    length: int | None
    step: int
    arrival: bool

    def describe(self) -> dict[str, str]:
        length = "unbounded" if self.length is None else str(self.length)
        return {"length": length, "step": str(self.step), "order": "arrival" if self.arrival else "values"}
