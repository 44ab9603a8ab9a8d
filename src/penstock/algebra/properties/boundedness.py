"""Whether what a relation holds at one time stays within bounds, however long its streams go on, and what bounds it.

Contract: `Algebra.boundedness` is derived from the plan alone, as the update pattern is. A relation is *bounded* when
time windows, counts of rows or a LIMIT bound it (given streams of a steady rate); bounded by *keys* when it has one
row, or so many, for every value of some columns: then it is as bounded as these values are; else *unbounded*, and the
source to blame is named. An operator that does not say otherwise holds what its inputs hold together.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Grade(enum.IntEnum):
    """How far something is bounded; the larger, the less."""

    FIXED = 0
    BOUNDED = 1
    KEYS = 2
    UNBOUNDED = 3


@dataclass(frozen=True)
class Boundedness:
    """by: what bounds it, or why nothing does, as people read it; hint: what would bound it; source: the source to look
    for in the script where it is not bounded; length: seconds after which everything in it has gone, if that is
    known."""

    grade: Grade
    by: str
    hint: str = ""
    source: str = ""
    length: float | None = 0.0


def together(found: Iterable[Boundedness]) -> Boundedness:
    """Return what bounds several relations that are held at once."""
    each = list(found)
    if not each:
        return Boundedness(Grade.FIXED, "one row")
    grade = max(one.grade for one in each)
    least = [one for one in each if one.grade is grade]
    texts = list(dict.fromkeys(one.by for one in least))
    lengths = [one.length for one in each]
    length = None if any(one is None for one in lengths) else max(one for one in lengths if one is not None)
    return Boundedness(grade, " and ".join(texts), least[0].hint, least[0].source, length)


def window_hint(source: str) -> str:
    """Return the hint for a stream without a window that loses elements."""
    return f"give {source} a window, such as [RANGE 1 HOUR] or [ROWS 1000]"
