"""Measure the work of operators, for EXPLAIN ANALYZE, and the size of their state, for the metrics of a run.

Contract: an executor with a `Meter` wraps its operators in it; without one nothing is counted, at no cost. Rows and
time are sums over rounds and shards; state is measured by `sample`, between rounds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from penstock.figures import (
    CPU_MILLISECONDS,
    PEAK_STATE_BYTES,
    PEAK_STATE_ROWS,
    ROWS_IN,
    ROWS_OUT,
    SHARDS,
    STATE_BYTES,
    STATE_ROWS,
)
from penstock.figures.figure import Figure, FigureValues, put_together
from penstock.physical.elements import Elements
from penstock.physical.operators.base.contract import Moment, Operator, Rejection
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.closing_index import ClusteredIndex
from penstock.storage.documents import Document


@dataclass
class Measured:
    """The measured work of one step.

    Args:
        counted: figures of scans, which readers count.
        figures: those of its operators.
        closed: rows of state by the promise that has closed them.
    """

    rows_in: int = 0
    rows_out: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    peak_rows: int = 0
    peak_bytes: int = 0
    nanoseconds: int = 0
    counted: dict[Figure, int] = field(default_factory=dict)
    figures: FigureValues = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)

    def pairs(self) -> tuple[tuple[str, int | float], ...]:
        """Return the (name, value) pairs that EXPLAIN shows, in order."""
        found: list[tuple[Figure, int | float]] = [(ROWS_IN, self.rows_in), (ROWS_OUT, self.rows_out)]
        numbers = {f: value for f, value in {**self.counted, **self.figures}.items() if isinstance(value, int | float)}
        shown = [(f.name, value) for f, value in (*found, *sorted(numbers.items(), key=lambda pair: pair[0].name))]
        shown += [(f"closed by {promise}", number) for promise, number in self.closed.items()]
        found = []
        if self.peak_rows or self.peak_bytes:
            found += [(STATE_ROWS, self.state_rows), (STATE_BYTES, self.state_bytes)]
            found += [(PEAK_STATE_ROWS, self.peak_rows), (PEAK_STATE_BYTES, self.peak_bytes)]
        found += [(CPU_MILLISECONDS, round(self.nanoseconds / 1e6, 3)), (SHARDS, max(1, len(self.operators)))]
        return (*shown, *((figure.name, value) for figure, value in found))


class Meter:
    """The measured work of the steps of a plan, by their number."""

    def __init__(self) -> None:
        self.steps: dict[int, Measured] = {}

    def of(self, step: int) -> Measured:
        return self.steps.setdefault(step, Measured())

    def watch(self, step: int, operator: Operator) -> Operator:
        """Wrap `operator`, one of those of `step`, so that its work is counted."""
        measured = self.of(step)
        measured.operators.append(operator)
        return _Metered(operator, measured)

    def sample(self) -> None:
        """Measure the current size of the state."""
        for measured in self.steps.values():
            held = [synopsis for operator in measured.operators for synopsis in operator.synopses().values()]
            measured.state_rows = sum(synopsis.rows for synopsis in held)
            measured.state_bytes = sum(synopsis.nbytes for synopsis in held)
            measured.peak_rows = max(measured.peak_rows, measured.state_rows)
            measured.figures = put_together(operator.figures() for operator in measured.operators)
            measured.closed = closed_by_promises(map(SynopsisSize.of, held))
            measured.peak_bytes = max(measured.peak_bytes, measured.state_bytes)


class SynopsisSize(NamedTuple):
    """The size of a synopsis. kind: its class; chunks, oldest, newest: its extent, where it has one; closed: by promise
    how many of its rows it has closed."""

    kind: str
    rows: int
    bytes: int
    chunks: int | None = None
    oldest: int | None = None
    newest: int | None = None
    closed: Mapping[str, int] = MappingProxyType({})

    @staticmethod
    def of(synopsis: Synopsis) -> SynopsisSize:
        chunks, oldest, newest = synopsis.extent or (None, None, None)
        kind, closed = type(synopsis).__name__, dict(synopsis.closed)
        return SynopsisSize(kind, synopsis.rows, synopsis.nbytes, chunks, oldest, newest, closed)

    @property
    def ends_by_promises(self) -> bool:
        """Return whether it holds rows or groups that promises end."""
        return bool(self.closed) and self.kind != ClusteredIndex.__name__


def closed_by_promises(held: Iterable[SynopsisSize]) -> dict[str, int]:
    """Return by promise how many rows and groups it has closed."""
    return all_closed(one for one in held if one.ends_by_promises)


def all_closed(held: Iterable[SynopsisSize]) -> dict[str, int]:
    """Return by promise how many rows, groups and values it has closed."""
    found = Counter[str]()
    for one in held:
        found.update(one.closed)
    return dict(found)


#: By step and name of its synopsis.
StateSizes: TypeAlias = Mapping[int, Mapping[str, SynopsisSize]]

#: By step, the figures of its operator (`Operator.figures`).
StepFigures: TypeAlias = Mapping[int, FigureValues]


def figures_of(operators: Mapping[int, Operator]) -> StepFigures:
    """Return the figures of the operators that have some."""
    # Most have none: a thousand calls take longer than a thousand looks at what would be called.
    return {
        step: figures
        for step, operator in operators.items()
        if type(operator).figures is not Operator.figures and (figures := operator.figures())
    }


class StateGauge:
    """The rows and bytes that operators hold. Some synopses must count them, so measuring is limited to a fiftieth of
    the time.
    """

    _SHARE = 50

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._next = clock()
        #: How often sizes were measured.
        self.looks = 0

    @property
    def is_due(self) -> bool:
        """Return whether it is not too early to measure again."""
        return self._clock() >= self._next

    def look(self, operators: Mapping[int, Operator]) -> StateSizes | None:
        """Return the sizes of those steps that have state; None when it is too early to measure again."""
        began = self._clock()
        if began < self._next:
            return None
        held = {step: operator.synopses() for step, operator in operators.items()}
        found = {
            step: {name: SynopsisSize.of(one) for name, one in some.items()} for step, some in held.items() if some
        }
        ended = self._clock()
        self._next = ended + self._SHARE * (ended - began)
        self.looks += 1
        return found


class _Metered(Operator):
    """An operator and its measured work."""

    def __init__(self, inner: Operator, measured: Measured) -> None:
        self._inner = inner
        self._measured = measured

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._measured.rows_in += len(elements)
        return list(self._done(lambda: self._inner.process(port, elements)))

    def advance(self, moment: Moment) -> Iterable[Elements]:
        return self._done(lambda: self._inner.advance(moment))

    def portion(self, moment: Moment, rows: int) -> int:
        return self._inner.portion(moment, rows)

    def _done(self, work: Callable[[], Iterable[Elements]]) -> Iterator[Elements]:
        """Yield the output of `work`; time that the consumer spends between two pieces is not counted."""
        began = time.process_time_ns()
        pieces = iter(work())
        while (made := next(pieces, None)) is not None:
            self._measured.nanoseconds += time.process_time_ns() - began
            self._measured.rows_out += len(made)
            yield made
            began = time.process_time_ns()
        self._measured.nanoseconds += time.process_time_ns() - began

    def rejections(self) -> list[Rejection]:
        return self._inner.rejections()

    def synopses(self) -> Mapping[str, Synopsis]:
        return self._inner.synopses()

    def marks(self) -> Document:
        return self._inner.marks()

    def restore_marks(self, marks: Document) -> None:
        self._inner.restore_marks(marks)
