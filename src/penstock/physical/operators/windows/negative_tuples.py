"""The negative tuple approach to expiration: a window that stores its tuples and emits a negative tuple at the
expiration of each `[golab 2.3.3]`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.plan.windows import NegativeTuplesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import make_queue
from penstock.types import END


class NegativeTuples(ReorderingOperator):
    """State: elements ahead of the heartbeat, and the window's content."""

    def __init__(self, spec: NegativeTuplesSpec) -> None:
        super().__init__(ReorderBuffer())
        self._live = make_queue(spec.fifo, False)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "live": self._live}

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is not None:
            kept = arrived.filter(arrived.exp < END)
            rows = [pa.array(kept.exp), pa.array(kept.signs), *kept.columns]
            self._live.push(unnamed(rows))
        result = [] if arrived is None else [_endless(arrived.columns, arrived.ts, arrived.sign)]
        for batch in self._live.pop_until(moment.heartbeat):
            due, signs = (int64s(c) for c in batch.columns[:2])
            result.append(_endless(batch.columns[2:], due, -signs))
        return result


def _endless(columns: list[pa.Array] | tuple[pa.Array, ...], ts: Int64s, sign: Int64s | None) -> Elements:
    return Elements(tuple(columns), ts, np.full(len(ts), END, np.int64), sign)
