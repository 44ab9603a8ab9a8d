"""How often a query is evaluated, as data: the input of a scheduler of several queries.

Contract: `periods(root)` returns every frequency and SLIDE of a plan, in the words of the query and as numbers. Those
of an optimised plan are the effective ones: frequencies that compose have been merged by then.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.algebra.nodes.base import Algebra, StreamToRelation, column_labels, operators
from penstock.algebra.nodes.frequency import Sequenced
from penstock.algebra.nodes.frequency_window import frequency_text
from penstock.algebra.nodes.rowwise import Project


class FrequencyPlace(enum.Enum):
    """The place of the frequency: on a stream that is read, in a window, or on the answers."""

    STREAM = "stream"
    WINDOW = "window"
    ANSWER = "answer"

    @property
    def text(self) -> str:
        """Return what is evaluated, for EXPLAIN."""
        return {"stream": "stream elements", "window": "window boundaries", "answer": "answers"}[self.value]


@dataclass(frozen=True)
class Period:
    """A frequency: every `tuples`-th tuple of each substream by the columns `by`, or the ticks align + k·`ticks`. One
    of the two is None. text: as written in a query."""

    place: FrequencyPlace
    tuples: int | None
    ticks: int | None
    align: int
    by: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.place.text}, {self.text}"


def periods(root: Algebra) -> tuple[Period, ...]:
    """Return the frequencies of the query `root`, each once, that of the answer first."""
    answer = root
    while isinstance(answer, Project):
        answer = answer.input
    of_operators = (_periods(node, node is answer) for node in operators(root))
    return tuple(dict.fromkeys(period for each in of_operators for period in each))


def _periods(node: Algebra, is_answer: bool) -> Iterator[Period]:
    place = FrequencyPlace.ANSWER if is_answer else FrequencyPlace.STREAM
    if isinstance(node, StreamToRelation):
        place = FrequencyPlace.WINDOW
    for tuples, ticks, align, by in node.evaluations():
        labels = column_labels(node.schema)
        text = frequency_text(tuples, ticks, align, by, node)
        yield Period(place, tuples, ticks, align, tuple(labels[i] for i in by), text)


def shortest_slide(roots: Iterable[Algebra], source: str) -> int | None:
    """Return the ticks between two boundaries of the window or frequency in time over `source` that has them closest;
    None where none has boundaries."""
    slides: list[int] = []
    for node in (node for root in roots for node in operators(root)):
        if source in node.source_names:
            own = node.windows if isinstance(node, Sequenced) else (node,)
            slides += [e.ticks for one in own for e in one.evaluations() if e.ticks is not None]
    return min(slides, default=None)
