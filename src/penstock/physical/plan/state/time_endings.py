"""Groups and rows that become final as time passes, and whose state is dropped then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.aggregate import Aggregate, Distinct, bounded_until_final, stretches
from penstock.algebra.properties.timestamps import Rising
from penstock.physical.plan.state.state_parts import StatePart


@dataclass(frozen=True)
class TimeEnding:
    """A column that never decreases with the instant at which rows enter: what has a smaller value than a row that
    entered at the next instant is final.

    Args:
        column: its place among the columns of the group, or of the row.
        stretch: the time in which it has one value, such as `one hour`.
    """

    column: int
    rising: Rising
    stretch: str = field(default="", compare=False)


def time_endings(node: Aggregate | Distinct) -> tuple[TimeEnding, ...]:
    """Return by which the groups, or the rows, of `node` become final."""
    pairs = zip(node.ending.items(), stretches(node.ending, node.schema), strict=True)
    return tuple(TimeEnding(column, rising, stretch) for (column, rising), stretch in pairs)


def shown_endings(endings: Sequence[TimeEnding]) -> Mapping[str, str]:
    """Return what EXPLAIN shows of them; nothing where there are none."""
    return {"kept": f"for {endings[0].stretch}"} if endings else {}


def until_final(parts: Iterable[StatePart], endings: Sequence[TimeEnding], what: str) -> Iterator[StatePart]:
    """Yield parts of the state of groups, or of rows, as they are bounded until these are final. what: their noun."""
    for part in parts:
        yield replace(part, bound=bounded_until_final(part.bound, what, endings[0].stretch)) if endings else part
