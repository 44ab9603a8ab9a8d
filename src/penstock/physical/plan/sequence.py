"""The specs of CSQL: the frequency operator, and a query in the sequence model with a plan of its own inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.expressions.nodes import Expression
from penstock.physical.plan.plan import Plan, Spec

if TYPE_CHECKING:
    from penstock.algebra import FrequencyWindow


@dataclass(frozen=True)
class FrequencySpec(Spec):
    """Of every partition each `rows`-th element, or the last one of each `slot` of time. arrival: as in RowWindow."""

    types: tuple[pa.DataType, ...]
    rows: int | None
    slot: int | None
    partition: tuple[int, ...]
    arrival: bool

    @property
    def waits(self) -> bool:
        return self.slot is not None or not self.arrival

    def describe(self) -> dict[str, str]:
        every = f"{self.rows} tuples" if self.slot is None else f"{self.slot} ticks"
        return {"every": every, "state": "counts" if self.slot is None else "the last of each substream"}


@dataclass(frozen=True)
class WindowShape:
    """What a window of the sequence model holds and when it is evaluated. rows, length, every, slide, align: as in
    `algebra.FrequencyWindow`; key: the columns that elements are counted by; alone: each substream is evaluated by
    itself."""

    rows: int | None
    length: int | None
    key: tuple[int, ...]
    every: int | None
    alone: bool
    slide: int | None
    align: int

    @staticmethod
    def of(window: FrequencyWindow) -> WindowShape:
        key = window.by or window.partition
        alone = window.every is not None and bool(window.by)
        return WindowShape(window.rows, window.length, key, window.every, alone, window.slide, window.align)

    @property
    def unbounded(self) -> bool:
        return self.rows is None and self.length is None

    @property
    def immediate(self) -> bool:
        """Whether every instant is one of evaluation."""
        return self.every is None and self.slide is None


@dataclass(frozen=True)
class SequenceWindow:
    """A window of the body: over which stream, and the source of the inner plan that its elements are given to.
    where: which of the stream's elements come into it; stamped: they carry the instant at which they arrived as a last
    column."""

    source: str
    stream: int
    where: Expression | None
    shape: WindowShape
    stamped: bool = False


@dataclass(frozen=True)
class SequenceModelSpec(Spec):
    """A query in the sequence model. Port i brings stream i, whose columns are `types`[i]; arrival: whether each comes
    in order of arrival. inner: the plan of its body, on the line of instants; periods: the (slide, align) of
    frequencies in time; all_instants: every boundary is an instant, else those at which something may change; ordered:
    the answer is told in order. asked: how often the query asks to be evaluated, for who schedules it, as (tuples,
    ticks, align), 0 for none. relations: of each port behind the streams', which brings the updates of a relation, the
    source of the inner plan that they are given to."""

    types: tuple[tuple[pa.DataType, ...], ...]
    arrival: tuple[bool, ...]
    windows: tuple[SequenceWindow, ...]
    periods: tuple[tuple[int, int], ...]
    all_instants: bool
    inner: Plan
    ordered: bool
    asked: tuple[tuple[int, int, int], ...]
    relations: tuple[str, ...] = ()

    def describe(self) -> dict[str, str]:
        shown = (f"{tuples} tuples" if tuples else f"{ticks} ticks" for tuples, ticks, _ in self.asked)
        stored = "only what an evaluation needs" if any(not w.shape.immediate for w in self.windows) else "windows"
        steps = " ".join(step.spec.title for step in self.inner.steps)
        return {"model": "sequence", "evaluated": ", ".join(shown) or "every arrival", "state": stored, "inside": steps}


@dataclass(frozen=True)
class CountTimeSpec(Spec):
    """A query in the sequence model over one stream, evaluated at every `every`-th element: to its windows the numbers
    of the elements are time. columns: those of the stream that are read; arrival, inner, ordered, asked: as in
    `SequenceModelSpec`; source: the source of the inner plan that is given the elements; rows: no window holds more,
    None for no limit."""

    columns: tuple[int, ...]
    arrival: bool
    source: str
    rows: int | None
    every: int
    inner: Plan
    ordered: bool
    asked: tuple[tuple[int, int, int], ...]

    def describe(self) -> dict[str, str]:
        steps = " ".join(step.spec.title for step in self.inner.steps)
        return {"model": "sequence", "evaluated": f"{self.every} tuples", "state": "by number", "inside": steps}


#: The source of the inner plan that tells at which instants a window is evaluated.
INSTANTS = "instants"
#: That which tells up to which instant all that arrived has come into its windows, or never will.
WAITING = "waiting"
#: That of a numbered query: its elements.
ARRIVALS = "arrivals"
