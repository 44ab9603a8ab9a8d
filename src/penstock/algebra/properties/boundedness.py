"""Whether the content of a relation stays within bounds, however long its streams run, and what bounds it.

Contract: `Algebra.boundedness` is derived from the plan alone, as the update pattern is. A relation is *bounded* when
time windows, counts of rows or a LIMIT bound it (for streams of a steady rate), or the values that the query leaves are
finitely many; bounded by *promises* when its rows end where senders keep what they promise of their streams; bounded by
*keys* when it has one row, or a fixed number, for every value of some columns: then it is as bounded as these values
are; else *unbounded*, and the source responsible is named. By default an operator is as bounded as its inputs together.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Grade(enum.IntEnum):
    """The degree of boundedness; the larger, the less bounded."""

    FIXED = 0
    BOUNDED = 1
    PROMISED = 2
    KEYS = 3
    UNBOUNDED = 4


@dataclass(frozen=True)
class Boundedness:
    """The boundedness of a relation. by: what bounds it, or why nothing does, as text for users; hint: what would bound
    it; source: the source to look for in the script where it is not bounded; length: seconds after which all its
    content has expired, if known; rows: how many are expected, where what bounds it says so."""

    grade: Grade
    by: str
    hint: str = ""
    source: str = ""
    length: float | None = 0.0
    rows: float | None = None


def together(bounds: Iterable[Boundedness]) -> Boundedness:
    """Return the boundedness of several relations that are stored at once."""
    each = list(bounds)
    if not each:
        return Boundedness(Grade.FIXED, "one row")
    grade = max(bound.grade for bound in each)
    least = [bound for bound in each if bound.grade is grade]
    texts = list(dict.fromkeys(bound.by for bound in least))
    lengths = [bound.length for bound in each]
    length = None if None in lengths else max(length for length in lengths if length is not None)
    return Boundedness(grade, " and ".join(texts), least[0].hint, least[0].source, length)


def window_hint(source: str) -> str:
    """Return the hint for a stream without a window that loses elements."""
    return f"give {source} a window, such as [RANGE 1 HOUR] or [ROWS 1000]"
