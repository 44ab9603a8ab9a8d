"""The arrival time of the elements of a window, as a column: the instant at which a NON RETROACTIVE relation is read.

An element of a window arrives at its own timestamp, whatever the boundary at which it becomes visible; a pair of a join
arrives with the later of both. `Algebra.with_arrival_time` expresses this in plain algebra over windows that emit it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base.algebra import Algebra
from penstock.algebra.properties.need import Needs
from penstock.algebra.properties.timestamps import NO_RISINGS, Rising, Risings
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import Column
from penstock.types import Field, Schema

#: The column with the arrival time, in ticks.
ARRIVAL = Field("came", pa.int64())


@dataclass(frozen=True, eq=False)
class ArrivalTime(Algebra):
    """The window `input` with a last column: the timestamp of each of its elements, in ticks; in the sequence model the
    instant at which it arrived."""

    input: Algebra

    @property
    def needs(self) -> Needs:
        return self.input.needs

    @property
    def rising(self) -> Risings:
        # At a boundary of SLIDE elements enter later than they arrived.
        at_once = not any(one.ticks is not None for one in self.input.evaluations())
        return {**self.input.rising, len(self.input.schema): Rising(ARRIVAL.type, 0)} if at_once else NO_RISINGS

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, ARRIVAL))

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern


def arrival_column(position: int) -> Column:
    """Return a reference to the arrival time at `position`."""
    return Column(ARRIVAL.type, position, ARRIVAL.name)
