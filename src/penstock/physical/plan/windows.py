"""The specs of samples and windows, and of windows that end elements by negative tuples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import pyarrow as pa

from penstock.algebra.properties.boundedness import Grade
from penstock.physical.plan.spec import Memory, Parameter, PassingSpec, Spec, Ticks, has_one_form
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.plan.state.state_parts import (
    SIGN,
    TIMES,
    StateInput,
    StatePart,
    all_rows,
    pending_ends,
    slots,
    width,
)


@dataclass(frozen=True)
class SampleSpec(PassingSpec):
    """The elements that a draw of `percent` keeps; seed and name (of the stream), or seed and
    the columns `by`, determine the draws. records: a last column has the inclusion records."""

    percent: Fraction
    seed: int
    name: str
    by: tuple[int, ...] = ()
    records: bool = False

    @property
    def memory(self) -> Memory:
        # A draw follows from the element; with another percentage it is another operator.
        return Memory.NOTHING

    def describe(self) -> dict[str, str]:
        return {"percent": f"{float(self.percent):g}", "seed": str(self.seed)}


@dataclass(frozen=True)
class RowDrawsSpec(Spec):
    """The rows with their draws as a last column (`algebra/nodes/row_draws.py`). counted: equal rows are numbered by
    how many are live; else by pane, whose elements come in one round."""

    types: tuple[pa.DataType, ...]
    seed: int
    name: str
    counted: bool

    @property
    def memory(self) -> Memory:
        return Memory.LIVE if has_one_form(self.types) else Memory.HISTORY

    def describe(self) -> dict[str, str]:
        return {"of": self.name, "seed": str(self.seed), "copies": "counted" if self.counted else "by pane"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        if self.counted:
            yield slots(inputs[0], 1, "different rows")
            yield from pending_ends(inputs[0])


@dataclass(frozen=True)
class TimeWindowSpec(PassingSpec):
    """Validity [ts, ts+length), both ends rounded up to a multiple of slide; length None is unbounded."""

    forwards_early: ClassVar[bool] = True
    varying: ClassVar[frozenset[str]] = frozenset({"length", "slide", "align"})
    only_varies: ClassVar[bool] = True

    length: int | None
    slide: int | None
    align: int = 0

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    @property
    def sets_ends_alone(self) -> bool:
        return self.slide is None

    def describe(self) -> Mapping[str, Parameter]:
        found: dict[str, Parameter] = {"length": "unbounded" if self.length is None else Ticks(self.length)}
        if self.slide is not None:
            found["slide"] = Ticks(self.slide)
        return found

    def panes(self, inputs: Sequence[StateInput]) -> AggregateLayout | None:
        # Panes of a finer window that several windows share, on their way to one of them.
        return inputs[0].lanes


@dataclass(frozen=True)
class RowWindowSpec(Spec):
    """The last `rows` elements of every partition, as in the algebra's `RowWindow`; step is 1 without SLIDE in rows.
    arrival: elements are in order of arrival; else those of one instant count in the order of their values."""

    types: tuple[pa.DataType, ...]
    rows: int
    step: int
    partition: tuple[int, ...]
    length: int | None
    slide: int | None
    align: int
    arrival: bool

    @property
    def memory(self) -> Memory:
        # The last rows of each partition, and their number as far as the step divides it; no query that needs rows is
        # mature but one that has read them. A row whose end is not known was emitted with that of its RANGE or none,
        # and only such rows are retracted. Without an order of arrival, rows of one instant are in that of their
        # values.
        return Memory.LIVE if has_one_form(self.types) else Memory.HISTORY

    def describe(self) -> Mapping[str, Parameter]:
        found: dict[str, Parameter] = {"rows": str(self.rows)}
        if self.step > 1:
            found["step"] = str(self.step)
        if self.length is not None:
            found["length"] = Ticks(self.length)
        if self.slide is not None:
            found["slide"] = Ticks(self.slide)
        return {**found, "order": "arrival" if self.arrival else "values"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        partitions = inputs[0].values(self.partition)
        rows = min(made.size, partitions * (self.rows + self.step - 1))
        if made.content.grade is Grade.FIXED or not self.partition:
            rows = min(rows, float(self.rows + self.step - 1))
        yield StatePart("the last rows", rows, rows * (24 + width(made.types)) + 48 * partitions, made.content)


@dataclass(frozen=True)
class StepWindowSpec(Spec):
    """A window in time of `length` ticks (None: unbounded) that moves when `step` more elements have arrived. arrival:
    as for `RowWindowSpec`."""

    types: tuple[pa.DataType, ...]
    length: int | None
    step: int
    arrival: bool

    def describe(self) -> Mapping[str, Parameter]:
        length = "unbounded" if self.length is None else Ticks(self.length)
        return {"length": length, "step": str(self.step), "order": "arrival" if self.arrival else "values"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return [all_rows(made, "rows of the window", TIMES + SIGN)]


@dataclass(frozen=True)
class NegativeTuplesSpec(Spec):
    """Elements without an expiration, and a negative tuple at the end of each. fifo: they expire in order of
    arrival."""

    fifo: bool

    @property
    def memory(self) -> Memory:
        return Memory.LIVE

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return pending_ends(inputs[0])
