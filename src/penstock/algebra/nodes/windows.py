"""Stream to relation: windows give every element a validity interval [semantics 4.1, 5].

`Window` is a window in time, which judges every element alone; `RowWindow` counts elements.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.algebra.nodes.base import (
    NO_KEYS,
    Algebra,
    ColumnPruning,
    Evaluation,
    Keys,
    Pruned,
    TimeModelWindow,
    column_labels,
)
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.base.checks import refused
from penstock.algebra.nodes.base.fields import Align, Columns, Counted, Ticks
from penstock.algebra.nodes.frequency_window import FrequencyWindow, slide_text
from penstock.algebra.nodes.scans import needs_of_last
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.computation import Computation
from penstock.algebra.properties.domains import Domains
from penstock.algebra.properties.need import LastRows, Needs, longer
from penstock.algebra.properties.promises import Promises
from penstock.algebra.properties.statistics import Statistics, seconds
from penstock.algebra.properties.timestamps import NO_RISINGS, Risings
from penstock.algebra.properties.update_pattern import Pattern


class WindowKind(enum.Enum):
    NOW = "NOW"
    RANGE = "RANGE"
    UNBOUNDED = "UNBOUNDED"


@dataclass(frozen=True, eq=False)
class Window(TimeModelWindow):
    """A time window over a stream. Lengths are in ticks of the input's domain.

    length: T of RANGE T (≥ 1), None otherwise; slide: s of SLIDE s (≥ 1), None for none; align: the tick that
    boundaries are counted from (ALIGN TO).
    """

    kind: WindowKind
    length: Ticks | None = None
    slide: Ticks | None = None
    align: Align = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.length is None) is (self.kind is WindowKind.RANGE):
            raise refused("length belongs to the kind RANGE", "P0102")

    @property
    def needs(self) -> Needs:
        return super().needs if self.lifetime is None else longer(self.input.needs, self.lifetime + (self.slide or 0))

    @property
    def lifetime(self) -> int | None:
        """Return for how many ticks an element is valid, before SLIDE rounds: one for NOW, None for ever."""
        return 1 if self.kind is WindowKind.NOW else self.length

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC if self.kind is WindowKind.UNBOUNDED else Pattern.WEAKEST

    @property
    def judges_alone(self) -> bool:
        return True

    @property
    def promises(self) -> Promises:
        below = self.input.promises
        return tuple(replace(one, slide=self.slide, align=self.align) for one in below) if self.slide else below

    @property
    def domains(self) -> Domains:
        return self.input.domains

    @property
    def enters_with_elements(self) -> bool:
        return self.input.enters_with_elements

    @property
    def order_of_ends(self) -> tuple[object, ...] | None:
        return self.kind, self.length, self.slide, self.align

    @property
    def boundedness(self) -> Boundedness:
        return super().boundedness if self.lifetime is None else self.bounded(self.lifetime + (self.slide or 0))

    def without_window(self, ended: bool = False) -> Algebra | None:
        return self.input if (ended or self.kind is WindowKind.UNBOUNDED) and self.slide is None else None

    @property
    def timestamp_column(self) -> int | None:
        # With SLIDE an element becomes visible at a boundary, not at the timestamp that it carries.
        return self.input.timestamp_column if self.slide is None else None

    @property
    def rising(self) -> Risings:
        return self.input.rising if self.slide is None else NO_RISINGS

    @property
    def is_instantaneous(self) -> bool:
        # RANGE of one tick is NOW. A SLIDE moves validity to a boundary, where no element need arrive.
        return self.lifetime == 1 and self.slide is None

    @property
    def is_windowed(self) -> bool:
        return self.kind is not WindowKind.UNBOUNDED

    def lives_an_instant(self, holds: Callable[[Algebra], bool]) -> bool:
        return self.is_instantaneous

    def computation(self, column: int) -> Computation:
        return Computation(((0, column),), copied=True)

    def without_slide(self) -> TimeModelWindow:
        return replace(self, slide=None, align=0)

    def on_the_line(self) -> FrequencyWindow:
        return FrequencyWindow(self.input, None, self.lifetime, slide=self.slide, align=self.align)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        if self.lifetime is None or self.domain is None:
            return below.decided()
        return replace(below, length=seconds(self.lifetime, self.domain)).decided()

    def describe(self) -> Mapping[str, str]:
        domain = self.domain
        show = domain.show_length if domain else str
        text = self.kind.value + (f" {show(self.length)}" if self.length is not None else "")
        return {"window": text + slide_text(self.slide, self.align, domain)}


def unbounded(stream: Algebra) -> Window:
    """Return the relation of all elements of `stream` so far."""
    return Window(stream, WindowKind.UNBOUNDED)


@dataclass(frozen=True, eq=False)
class RowWindow(TimeModelWindow):
    """The last `rows` (≥ 1) elements of a stream in (timestamp, arrival) order, of every partition where there are any.
    rows None: a window in time that moves by rows (RANGE T SLIDE m ROWS): when the count comes to a multiple of `step`,
    the content becomes the elements counted so far whose `length` has not passed then.

    step: m of SLIDE m ROWS: the content changes only when the count of arrived elements is a multiple of m; None for 1.
    partition: positions of the PARTITION BY columns; () counts the whole stream. length: T of RANGE T in ticks: an
    element ends after T at the latest; None for no such limit. slide, align: a SLIDE in time, as for `Window`.
    """

    in_language: ClassVar[str] = "[ROWS n]"

    rows: Counted | None
    step: Counted | None = None
    partition: Columns = ()
    length: Ticks | None = None
    slide: Ticks | None = None
    align: Align = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is None and (self.step is None or self.partition):
            raise refused("a window without rows moves by a step, and has no partition", "P0102")

    @property
    def needs(self) -> Needs:
        if self.rows is None:
            return super().needs  # the content is as old as the arrival that brought it
        step = self.step or 1
        if self.length is not None and step == 1:
            return longer(self.input.needs, self.length + (self.slide or 0))
        return needs_of_last(self.input, LastRows(self.rows + step - 1, self.partition, step), self.slide or 0)

    @property
    def lifetime(self) -> int | None:
        """Return for at most how many ticks an element is valid, before SLIDE rounds; None where only other elements
        end it."""
        return None if self.rows is None else self.length

    @property
    def pattern(self) -> Pattern:
        return Pattern.STRICT  # later elements decide when an element ends

    @property
    def boundedness(self) -> Boundedness:
        if self.length is not None:
            return self.bounded(self.length + (self.slide or 0))
        if self.rows is None:
            return super().boundedness
        if not self.partition:
            return Boundedness(Grade.BOUNDED, self.described, length=None)
        labels = column_labels(self.schema)
        text = f"{self.described}, by the number of partitions ({', '.join(labels[i] for i in self.partition)})"
        return Boundedness(Grade.KEYS, text, "", self.source_names[0] if self.source_names else "", None)

    @property
    def carries_ends(self) -> bool:
        return self.length is not None

    @property
    def timestamp_column(self) -> int | None:
        return self.input.timestamp_column if self.slide is None and self.step is None else None

    @property
    def is_instantaneous(self) -> bool:
        return self.lifetime == 1 and self.slide is None

    @property
    def is_windowed(self) -> bool:
        return self.lifetime is not None

    @property
    def is_elementwise(self) -> bool:
        # With a SLIDE in rows an element enters with a later one.
        return self.step is None

    def evaluations(self) -> Iterable[Evaluation]:
        if self.step is not None and self.step > 1:
            yield Evaluation(self.step, None, 0, self.partition)
        yield from super().evaluations()

    def without_slide(self) -> TimeModelWindow:
        return replace(self, slide=None, align=0)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # Partition columns make the partitions; without an order of arrival all values order elements of one instant.
        if in_arrival_order(self.input) is None:
            return pruning.whole(self)
        below = pruning.narrowed(self.input, needed.union(self.partition))
        partition = tuple(below.positions[i] for i in self.partition)
        return Pruned(replace(self, input=below.node, partition=partition), below.positions)

    def on_the_line(self) -> FrequencyWindow:
        by = self.partition if self.step is not None else ()
        return FrequencyWindow(
            self.input, self.rows, self.length, self.partition, self.step, by, self.slide, self.align
        )

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        """Return the estimate: a tuple is valid until `rows` later ones have arrived in its partition, and each is
        retracted by a negative tuple."""
        below = inputs[0].decided()
        partitions = 1.0
        for i in self.partition:
            partitions *= below.distinct[i]
        length = below.length
        if self.rows is not None:
            length = min(length, self.rows * partitions / below.rate)
        if self.length is not None and self.domain is not None:
            length = min(length, seconds(self.length, self.domain))
        return replace(replace(inputs[0], length=length).decided(), taken=below.rate)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    @property
    def keys(self) -> Keys:
        return frozenset({frozenset(self.partition)}) if self.rows == 1 else NO_KEYS

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        by = f"PARTITION BY {', '.join(labels[i] for i in self.partition)} " if self.partition else ""
        text = f"{by}ROWS {self.rows}" if self.rows is not None else "" if self.length is not None else "UNBOUNDED"
        domain = self.domain
        show = domain.show_length if domain else str
        if self.length is not None:
            text = f"{text} RANGE {show(self.length)}".strip()
        if self.step is not None:
            text += f" SLIDE {self.step} ROWS"
        return {"window": text + slide_text(self.slide, self.align, domain)}
