"""How often a query asks to be answered, as data: what a scheduler of several queries goes by.

Contract: `periods(root)` tells every frequency and SLIDE that stands in a plan, in the words it was asked in and as
numbers. Of an optimised plan these are the ones that count: frequencies that compose have become one by then.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.algebra.nodes.base import Algebra, column_labels, leaves
from penstock.algebra.nodes.frequency import Frequency, Sequenced
from penstock.algebra.nodes.frequency_window import FrequencyWindow, frequency_text
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.nodes.windows import RowWindow, Window
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
    found = (_period(node, node is answer) for node in walk(root) if isinstance(node, Algebra))
    return tuple(dict.fromkeys(period for each in found for period in each))


def _period(node: Algebra, is_answer: bool) -> Iterator[Period]:
    if isinstance(node, Frequency):
        place = FrequencyPlace.ANSWER if is_answer else FrequencyPlace.STREAM
        yield _asked(place, node, node.rows, node.slot, 0, node.partition)
    elif isinstance(node, FrequencyWindow):
        if node.every is not None or node.slide is not None:
            yield _asked(FrequencyPlace.WINDOW, node, node.every, node.slide, node.align, node.by)
    elif isinstance(node, RowWindow):
        if node.step is not None and node.step > 1:
            yield _asked(FrequencyPlace.WINDOW, node, node.step, None, 0, node.partition)
        if node.slide is not None:
            yield _asked(FrequencyPlace.WINDOW, node, None, node.slide, node.align, ())
    elif isinstance(node, Window) and node.slide is not None:
        yield _asked(FrequencyPlace.WINDOW, node, None, node.slide, node.align, ())


def shortest_slide(roots: Iterable[Algebra], source: str) -> int | None:
    """Return the ticks between two boundaries of the window or frequency in time over `source` that has them closest;
    None where none has boundaries."""
    found: list[int | None] = []
    for node in (node for root in roots for node in walk(root) if isinstance(node, Algebra)):
        if isinstance(node, Window | RowWindow | Frequency | Sequenced) and _reads(node, source):
            found += [w.slide for w in node.windows] if isinstance(node, Sequenced) else []
            found += [node.slot] if isinstance(node, Frequency) else []
            found += [node.slide] if isinstance(node, Window | RowWindow) else []
    return min((slide for slide in found if slide is not None), default=None)


def _reads(node: Algebra, source: str) -> bool:
    return any(isinstance(leaf, Scan) and leaf.source.name == source for leaf in leaves(node))


def _asked(
    place: FrequencyPlace, node: Algebra, tuples: int | None, ticks: int | None, align: int, by: tuple[int, ...]
) -> Period:
    labels = column_labels(node.schema)
    text = frequency_text(tuples, ticks, align, by, node)
    return Period(place, tuples, ticks, align, tuple(labels[i] for i in by), text)
