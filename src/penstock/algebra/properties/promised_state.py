"""What state that ends by promises is bounded by, as text for users and as an expected number of rows.

A promise that closes values ends the rows of the values that it closes. Of CLUSTERED BY and UNIQUE these are only
values that come on the stream that promises: a row whose value never comes there, or was closed before, stays. A
reference and ORDERED BY end all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.promises import Clustered, ForeignKey, Ordered, PassedPromise, Promise, Within
from penstock.algebra.properties.statistics import seconds
from penstock.errors import counted
from penstock.types import TimeDomain


@dataclass(frozen=True)
class EndingPromise:
    """A promise that ends rows, with the names of the columns whose values it closes there. domain: of its stream."""

    promise: PassedPromise
    columns: tuple[str, ...]
    domain: TimeDomain | None = None

    @property
    def kind(self) -> Promise:
        return self.promise.promise

    @property
    def ends_all(self) -> bool:
        """Return whether it ends every row, whatever comes on the stream that promises."""
        return all(isinstance(base.promise, ForeignKey | Ordered) for base in self.promise.bases)

    def text(self) -> str:
        """Return such as `CLUSTERED BY orderID WITHIN 5 ROWS of F`."""
        kind = self.kind
        shown = f"{kind.WORDS} {', '.join(self.columns)}".rstrip()
        if isinstance(kind, Ordered) and kind.descending:
            shown += " DESC"
        if isinstance(kind, ForeignKey | Clustered | Ordered):
            shown += f" WITHIN {shown_within(kind.within, self.domain)}"
        return f"{shown} of {', '.join(base.source for base in self.promise.bases)}"

    def expected(self, rate: float, of_stream: float, domain: TimeDomain | None) -> float | None:
        """Return how many values are expected to be open, or how many rows to be not settled; None where the promise
        does not say.

        Args:
            rate: rows a second that it ends.
            of_stream: rows a second of the stream by which k is counted.
        """
        kind = self.kind
        if not isinstance(kind, ForeignKey | Clustered | Ordered):
            return None
        within = kind.within
        if within.ticks is not None:
            return rate * (0.0 if domain is None else seconds(within.ticks, domain))
        rows = within.rows or 0
        if isinstance(kind, Clustered):
            return float(max(1, rows))  # the last rows of all open values are among the last k
        return rows * rate / of_stream if of_stream else None


def ended_by(ending: Sequence[EndingPromise], below: Boundedness, what: str) -> Boundedness:
    """Return what bounds rows that end by the first of some promises.

    Args:
        below: what bounds them without promises.
        what: the noun of rows that end by promises of another stream, such as `row of O`; empty where they end by
            those of their own.
    """
    if below.grade <= Grade.PROMISED or not ending:
        return below
    texts = dict.fromkeys(one.text() for one in ending)
    hint = _what_stays(ending, what) if what else ""
    return Boundedness(Grade.PROMISED, " or ".join(texts), hint, below.source, None)


def with_expected(bound: Boundedness, ending: Sequence[EndingPromise], rate: Callable[[str], float]) -> Boundedness:
    """Return what bounds rows with how many are expected: `...: about 5 values of orderID open`.

    Args:
        bound: of `ended_by`; its source is the stream of the rows.
        rate: returns the rows a second of a stream.
    """
    for one in ending:
        base = one.promise.bases[0]
        counts = one.kind.parent if isinstance(one.kind, ForeignKey) else base.source
        number = one.expected(rate(bound.source or base.source), rate(counts), one.domain)
        if number is not None and bound.grade is Grade.PROMISED:
            least = max(1, round(number))
            of = f"{counted(least, 'value')} of {' and '.join(one.columns)} open"
            shown = f"{counted(least, 'row')} not settled" if isinstance(one.kind, ForeignKey) else of
            return replace(bound, by=f"{bound.by}: about {shown}", rows=least)
    return bound


def _what_stays(ending: Sequence[EndingPromise], what: str) -> str:
    """Return what the promises do not end, and what would; empty where they end all."""
    if any(one.ends_all for one in ending):
        return ""
    first = ending[0]
    source, columns = first.promise.bases[0].source, " and ".join(first.columns)
    stays = f"a {what} whose {columns} never comes on {source}"
    if isinstance(first.kind, Clustered):
        stays += ", or was closed there before,"
    return f"{stays} stays; ORDERED BY, a FOREIGN KEY or a window ends it too"


def shown_within(within: Within, domain: TimeDomain | None) -> str:
    """Return k as a statement has it."""
    if within.ticks is None:
        return f"{within.rows} ROWS"
    assert domain is not None, "a stream has a time domain"
    return domain.show_length(within.ticks) if within.ticks else f"0 {domain.unit.name}"
