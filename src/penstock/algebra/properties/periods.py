"""How often a query asks to be answered, as data: what a scheduler of several queries goes by.

Contract: `periods(root)` tells every frequency and SLIDE that stands in a plan, in the words it was asked in and as
numbers. Of an optimised plan these are the ones that count: frequencies that compose have become one by then.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.algebra.nodes.base import Algebra, StreamToRelation, column_labels
from penstock.algebra.nodes.frequency import Sequenced
from penstock.algebra.nodes.frequency_window import frequency_text
from penstock.algebra.nodes.rowwise import Project
from penstock.tree import walk


class FrequencyPlace(enum.Enum):
    """Where it is asked: on a stream that is read, in a window, of the answers."""

    STREAM = "stream"
    WINDOW = "window"
    ANSWER = "answer"


@dataclass(frozen=True)
class Period:
    """Every so many `tuples`, of each substream by the columns `by`; or at the ticks align + k·`ticks`. One of the two
    is None. text: as people write it."""

    place: FrequencyPlace
    tuples: int | None
    ticks: int | None
    align: int
    by: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.place.value}: {self.text}"


def periods(root: Algebra) -> tuple[Period, ...]:
    """What the query `root` asks for, each once, the answer's first."""
    answer = root
    while isinstance(answer, Project):
        answer = answer.input
    found = (_periods(node, node is answer) for node in walk(root) if isinstance(node, Algebra))
    return tuple(dict.fromkeys(period for each in found for period in each))


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
    for node in (node for root in roots for node in walk(root) if isinstance(node, Algebra)):
        if source in node.source_names:
            own = node.windows if isinstance(node, Sequenced) else (node,)
            slides += [e.ticks for one in own for e in one.evaluations() if e.ticks is not None]
    return min(slides, default=None)
