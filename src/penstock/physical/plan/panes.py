"""The specs of aggregates over windows that slide: panes that several windows share, and answers at boundaries only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.physical.plan.plan import Spec, queue_name
from penstock.physical.planning.aggregate_layout import AggregateLayout


@dataclass(frozen=True)
class PanesSpec(Spec):
    """Lane rows of one group and one validity become one: panes of a finer window fall together in a coarser one."""

    plan: AggregateLayout


@dataclass(frozen=True)
class IncrementalSlideSpec(Spec):
    """RSTREAM of a grouped aggregate at the boundaries align + k·slide: its rows there, told without its changes."""

    plan: AggregateLayout
    fifo: bool
    input_types: tuple[pa.DataType, ...]
    slide: int
    align: int
    listed: bool = False

    def describe(self) -> dict[str, str]:
        return {"slide": str(self.slide), "state": queue_name(self.fifo, self.listed)}


@dataclass(frozen=True)
class PaneStoreSpec(Spec):
    """The panes of all windows that differ in length and slide alone, kept once. types: of lane rows."""

    plan: AggregateLayout
    types: tuple[pa.DataType, ...]

    def describe(self) -> dict[str, str]:
        return {"state": "panes, read by every window over them"}


@dataclass(frozen=True)
class WindowSumsSpec(Spec):
    """As `IncrementalSlideSpec`, of sums alone over a window of `length` ticks; the panes lie in a `PaneStoreSpec`."""

    reads: ClassVar[bool] = True

    plan: AggregateLayout
    length: int
    slide: int
    align: int

    def describe(self) -> dict[str, str]:
        return {"length": str(self.length), "slide": str(self.slide), "state": "sums of the panes below"}


@dataclass(frozen=True)
class RecomputedSlideSpec(Spec):
    """As `IncrementalSlideSpec`, over windows of which few overlap: each boundary is computed anew. timed: of windows
    in time; else the numbers of elements are time, so there is none before the first."""

    plan: AggregateLayout
    slide: int
    align: int
    timed: bool

    def describe(self) -> dict[str, str]:
        return {"slide": str(self.slide), "state": "panes of boundaries to come"}
