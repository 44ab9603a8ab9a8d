"""What spreads a band join over shards: every element goes to each cell of the axis that its span reaches into.

Two spans that overlap share a run of cells, which begins with the first cell of one of them; no other cell of the run
is the first of either. So a pair is made once: where one of both is in its first cell.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.physical.elements import Elements
from penstock.physical.kernels import repeat
from penstock.physical.operators.contract import Operator
from penstock.physical.range_plan import CellsSpec
from penstock.physical.ranges import cells, comparable


class Cells(Operator):
    """Keeps nothing. A NULL compares with nothing, and a span with crossed ends holds nothing: both are dropped."""

    def __init__(self, spec: CellsSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        elements = elements.filter(comparable(self._spec.span, elements))
        if not len(elements):
            return []
        first, last = cells(self._spec.span, elements, self._spec.width)
        rows, places = repeat(last - first + 1)
        if not len(rows):
            return []
        made = elements.take(rows)
        return [made.with_columns([*made.columns, pa.array(first[rows] + places), pa.array(places == 0)])]
