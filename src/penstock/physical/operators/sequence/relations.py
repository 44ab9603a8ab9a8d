"""A query in the sequence model that reads relations with updates beside its streams [semantics 6].

At an instant, a relation has the content that it has at the instant's timestamp. So an update creates no instant: it
is kept until the first instant with its timestamp or a later one, and enters the nested plan there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.ticks import round_up
from penstock.physical.operators.base.contract import Moment, RunPlan, Tables
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.sequence.sequence_model import SequenceModel
from penstock.physical.plan.sequence import WAITING, SequenceModelSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.types import END


class SequenceModelWithRelations(SequenceModel):
    """State: that of `SequenceModel`, and the updates after the latest instant."""

    def __init__(self, spec: SequenceModelSpec, tables: Tables, run_plan: RunPlan) -> None:
        super().__init__(spec, tables, run_plan)
        self._updates = [ReorderBuffer() for _ in spec.relations]

    def synopses(self) -> Mapping[str, Synopsis]:
        waiting = {f"updates{number}": early.queue for number, early in enumerate(self._updates)}
        return {**super().synopses(), **waiting}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        streams = len(self._spec.types)
        if port < streams:
            return super().process(port, elements)
        self._updates[port - streams].add(elements)
        if self._spec.periods and len(elements):
            # The result may change at the first boundary after an update.
            ticks = np.unique(elements.ts)
            ahead = np.unique(np.concatenate([round_up(ticks, *period) for period in self._spec.periods]))
            self._boundaries.add(Elements((), ahead, np.full(len(ahead), END)))
        return []

    def advance(self, moment: Moment) -> Iterator[Elements]:
        for early in self._updates:
            early.hold()
        return super().advance(moment)

    def _nested_input(
        self, streams: Sequence[Elements], arrived: Sequence[Int64s], ticks: Int64s, order: Int64s
    ) -> dict[str, Elements]:
        first, line = self._count + 1, ticks[order]
        inputs = super()._nested_input(streams, arrived, ticks, order)
        for name, early in zip(self._spec.relations, self._updates, strict=True):
            changes = early.until(int(line[-1]))
            if changes is not None:
                inputs[name] = Elements(
                    changes.columns, first + np.searchsorted(line, changes.ts), changes.exp, changes.sign
                )
        # Elements that have entered their windows look up no relation any more.
        inputs[WAITING] = Elements((), np.array([self._first_waiting_instant() - 1]), np.array([END]))
        return inputs


def make_sequence_model(spec: SequenceModelSpec, tables: Tables, run_plan: RunPlan) -> SequenceModel:
    """Return the operator of `spec`, which costs less where it reads no relation."""
    return (SequenceModelWithRelations if spec.relations else SequenceModel)(spec, tables, run_plan)
