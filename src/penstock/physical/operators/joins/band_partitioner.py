"""The band partitioner distributes a band join over shards: every element is sent to each cell of the axis that its
range overlaps.

Two ranges that overlap share a run of cells, which begins with the first cell of one of them; no other cell of the run
is the first of either. So a pair is produced once: in the cell that is the first of one of the two.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.physical.elements import Elements
from penstock.physical.kernels.compiled import repeat
from penstock.physical.operators.base.contract import Operator
from penstock.physical.plan.joins.ranges import cells, comparable
from penstock.physical.plan.joins.specs import BandPartitionerSpec


class BandPartitioner(Operator):
    """No state. Elements with a NULL end, which match nothing, are dropped. Those with crossed ends match what spans
    both of these."""

    def __init__(self, spec: BandPartitionerSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        elements = elements.filter(comparable(self._spec.span, elements))
        if not len(elements):
            return []
        first, last = cells(self._spec.span, elements, self._spec.width)
        rows, offsets = repeat(last - first + 1)
        copies = elements.take(rows)
        return [copies.with_columns([*copies.columns, pa.array(first[rows] + offsets), pa.array(offsets == 0)])]
