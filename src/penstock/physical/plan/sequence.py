"""The specs of CSQL: the frequency operator, and a query in the sequence model with a plan of its own inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import seconds
from penstock.expressions.nodes import Expression
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.spec import Parameter, Spec, Ticks
from penstock.physical.plan.state.of_sketches import sketch_state
from penstock.physical.plan.state.state_parts import SLOT, TIMES, StateInput, StatePart, all_rows, width

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

    def describe(self) -> Mapping[str, Parameter]:
        every = f"{self.rows} tuples" if self.slot is None else Ticks(self.slot)
        return {"every": every, "state": "counts" if self.slot is None else "the last of each substream"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        rows = inputs[0].values(self.partition)
        bound = inputs[0].by_keys(self.partition, "substreams")
        if self.slot is None:
            yield StatePart("counts by substream", rows, rows * (SLOT + 8), bound)
        else:
            yield StatePart("the last element of each substream", rows, rows * (width(made.types) + TIMES), bound)


@dataclass(frozen=True)
class WindowShape:
    """The content and the evaluation instants of a window of the sequence model. rows, length, every, slide, align: as
    in `algebra.FrequencyWindow`; key: the columns by which elements are counted; alone: each substream is evaluated by
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
        """Return whether every instant is an evaluation instant."""
        return self.every is None and self.slide is None

    def elements(self, one: StateInput) -> tuple[float, Boundedness]:
        """Return the elements of a stream that the window contains, and what bounds them."""
        if self.length is not None and one.node.domain is not None:
            length = seconds(self.length + self.slide if self.slide else self.length, one.node.domain)
            return one.expected.rate * length, Boundedness(Grade.BOUNDED, "the window's RANGE", length=length)
        if self.rows is not None:
            bound = Boundedness(Grade.BOUNDED, f"RANGE {self.rows} TUPLES", length=None)
            rows = min(one.size, self.rows * one.values(self.key))
            return rows, one.by_keys(self.key, "substreams") if self.key else bound
        return one.size, one.content


@dataclass(frozen=True)
class SequenceWindow:
    """A window of the body: its stream, and the source of the inner plan that receives its elements. where: the
    condition of the stream's elements that enter it; stamped: they carry the instant of their arrival as a last
    column; evaluated: the source that receives, at every evaluation of a substream, its values."""

    source: str
    stream: int
    where: Expression | None
    shape: WindowShape
    stamped: bool = False
    evaluated: str | None = None


@dataclass(frozen=True)
class SequenceModelSpec(Spec):
    """A query in the sequence model. Port i brings stream i, whose columns are `types`[i]; arrival: whether each is in
    order of arrival. inner: the plan of its body, on the line of instants; periods: the (slide, align) of frequencies
    in time; all_instants: every boundary is an instant, else those at which something may change. asked: the
    frequencies of the query for a scheduler, as (tuples, ticks, align), 0 for none. relations: of each
    port behind the streams', which brings the updates of a relation, the source of the inner plan that receives
    them."""

    types: tuple[tuple[pa.DataType, ...], ...]
    arrival: tuple[bool, ...]
    windows: tuple[SequenceWindow, ...]
    periods: tuple[tuple[int, int], ...]
    all_instants: bool
    inner: Plan
    asked: tuple[tuple[int, int, int], ...]
    relations: tuple[str, ...] = ()

    def describe(self) -> Mapping[str, Parameter]:
        shown = tuple(f"{tuples} tuples" if tuples else Ticks(ticks) for tuples, ticks, _ in self.asked)
        stored = "only what an evaluation needs" if any(not w.shape.immediate for w in self.windows) else "windows"
        steps = " ".join(step.spec.title for step in self.inner.steps)
        return {"model": "sequence", "evaluated": shown or "every arrival", "state": stored, "inside": steps}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        """Return, for every window, its elements, and about the same size again in the operators of the body over it,
        which store relations with updates too."""
        for number, window in enumerate(self.windows, 1):
            one = inputs[window.stream]
            rows, bound = window.shape.elements(one)
            nbytes = rows * (width(one.types) + TIMES)
            yield StatePart(f"elements of window {number}", rows, nbytes, bound)
            yield StatePart(f"what the body keeps of window {number}", rows, nbytes, bound)
        for one in inputs[len(self.types) :]:
            yield all_rows(one, "what the body keeps of a relation")


@dataclass(frozen=True)
class CountTimeSpec(Spec):
    """A query in the sequence model over one stream, evaluated at every `every`-th element: the numbers of the elements
    are time for its windows. columns: those of the stream that are read; arrival, inner, asked: as in
    `SequenceModelSpec`; source: the source of the inner plan that receives the elements; rows: the maximal number of
    rows of a window, None for no limit. relation: the answer is a relation, whose elements may end."""

    columns: tuple[int, ...]
    arrival: bool
    source: str
    rows: int | None
    every: int
    inner: Plan
    asked: tuple[tuple[int, int, int], ...]
    relation: bool = False

    def describe(self) -> dict[str, str]:
        steps = " ".join(step.spec.title for step in self.inner.steps)
        return {"model": "sequence", "evaluated": f"{self.every} tuples", "state": "by number", "inside": steps}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        """Return the state of the operators of the body for the content of the windows."""
        rows, bound = WindowShape(self.rows, None, (), self.every, False, None, 0).elements(inputs[0])
        plans = [step.spec.grouped for step in self.inner.steps]
        sketched = [plan for plan in plans if plan is not None and plan.sketched]
        # The rows between two evaluations are a pane.
        distinct = tuple(inputs[0].expected.distinct[column] for column in self.columns)
        listing = {step.id: step for step in self.inner.steps if step.spec.lists_items}
        for step in self.inner.steps:
            for candidates in (listing[edge.step] for edge in step.inputs if edge.step in listing):
                counts = replace(
                    inputs[0],
                    content=bound,
                    expected=Estimate(float(self.every), rows / self.every, distinct),
                    types=candidates.types,
                    period=1.0,
                )
                yield from candidates.spec.state([counts], counts)
                lists = candidates.spec.passed_on([counts], counts)
                yield from step.spec.state([lists], lists)
        if listing and inputs[0].node.domain is not None:
            ahead = inputs[0].expected.rate * seconds(1, inputs[0].node.domain)
            yield StatePart("elements of one timestamp", ahead, ahead * (width(inputs[0].types) + TIMES), bound)
        if not sketched and not listing:
            nbytes = rows * (width(inputs[0].types) + TIMES)
            yield StatePart("what the body keeps of its windows", rows, nbytes, bound)
        for plan in sketched:
            groups = replace(inputs[0], expected=Estimate(float(self.every), 1.0, distinct)).values(plan.group)
            live = Estimate(groups * max(1.0, rows / self.every), 1.0, distinct)
            panes = replace(inputs[0], content=bound, expected=live, elements=max(1.0, self.every / groups))
            for argument in (plan.arguments[i] for i in plan.sketched):
                yield from sketch_state(plan, argument, panes, groups, ends=True)


#: The source of the inner plan with the evaluation instants of a window.
INSTANTS = "instants"
#: Before the name of a window: the source with the values of the substreams that it evaluates.
EVALUATED = "evaluated "
#: The source with the instants up to which every element has entered its windows, or never will.
WAITING = "waiting"
#: The source with the elements of a query in count time.
ARRIVALS = "arrivals"
