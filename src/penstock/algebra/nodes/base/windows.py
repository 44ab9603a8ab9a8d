"""Bases of the kinds of windows. Rules and lowerings ask a window what it does, seldom which it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.algebra.nodes.base.algebra import Algebra, ColumnPruning, Delay, Evaluation, Pruned
from penstock.algebra.nodes.base.arrival_time import ArrivalTime
from penstock.algebra.nodes.base.checks import need_stream
from penstock.algebra.nodes.base.families import Unary
from penstock.algebra.properties.boundedness import Boundedness, Grade, window_hint
from penstock.algebra.properties.statistics import seconds
from penstock.algebra.properties.update_pattern import Pattern


@dataclass(frozen=True, eq=False)
class StreamToRelation(Unary):
    """A window: it turns a stream into a relation. Base of every kind of window; a kind with the fields `slide`,
    `align` or `partition` overrides these properties by them."""

    def __post_init__(self) -> None:
        need_stream(self.input)

    @property
    def slide(self) -> int | None:
        """Return the ticks between two boundaries at which the content changes; None where it may change at every
        tick."""
        return None

    @property
    def align(self) -> int:
        """Return the tick that boundaries are counted from."""
        return 0

    @property
    def partition(self) -> tuple[int, ...]:
        """Return the columns whose values define partitions, each of which is a window of its own."""
        return ()

    def with_arrival_time(self) -> Algebra:
        return ArrivalTime(self)

    @property
    def results_have_lives(self) -> bool:
        return True

    @property
    def may_be_kept(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class TimeModelWindow(StreamToRelation):
    """A window over the time line of timestamps: base of every kind except that of the sequence model."""

    @property
    def lifetime(self) -> int | None:
        """Return the most ticks from the timestamp of an element to its expiration, before SLIDE rounds; None where
        time alone does not end it."""
        return None

    @property
    def judges_alone(self) -> bool:
        """Return whether the validity of an element follows from its own timestamp alone, and SLIDE rounds both ends up
        to a boundary."""
        return False

    @property
    def order_of_ends(self) -> tuple[object, ...] | None:
        """Return what decides the order of expiration of elements that arrived in order: elements of two windows for
        which it is equal expire in order of arrival. None where elements of this window alone may not."""
        return None

    @property
    def boundedness(self) -> Boundedness:
        names = ", ".join(self.source_names)
        source = names.split(", ")[0]
        return Boundedness(Grade.UNBOUNDED, f"the window UNBOUNDED of {names}", window_hint(source), source, None)

    @property
    def carries_ends(self) -> bool:
        return self.pattern in (Pattern.WEAKEST, Pattern.WEAK)

    @property
    def is_elementwise(self) -> bool:
        return self.judges_alone

    @property
    def over_one_window(self) -> bool:
        return self.judges_alone

    @property
    def delays(self) -> tuple[Delay, ...]:
        # What never ends is still evaluated at the boundary after the last element.
        return (Delay(self.lifetime or 0, self.slide, self.align),)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        if not self.judges_alone:
            return pruning.whole(self)
        below = pruning.pruned(self.input, needed)
        return Pruned(replace(self, input=below.node), below.positions)

    def with_inclusion(self) -> Algebra | None:
        # The content of a window that counts rows is not that of the same window over the whole stream.
        below = self.input.with_inclusion() if self.judges_alone else None
        return super().with_inclusion() if below is None else replace(self, input=below)

    def evaluations(self) -> Iterable[Evaluation]:
        return () if self.slide is None else (Evaluation(None, self.slide, self.align, ()),)

    def without_slide(self) -> TimeModelWindow:
        """Return the window of the same length whose content may change at every tick."""
        assert self.slide is None, f"{type(self).__name__} does not say what it is without SLIDE"
        return self

    def on_the_line(self) -> StreamToRelation | None:
        """Return this window as one of the sequence model (`algebra/nodes/frequency.py`), None if it has no such
        form."""
        return None

    def bounded(self, ticks: int) -> Boundedness:
        """Return the boundedness of a window whose elements have all expired after `ticks`."""
        length = 0.0 if self.domain is None else seconds(ticks, self.domain)
        return Boundedness(Grade.BOUNDED, self.described, length=length)

    @property
    def described(self) -> str:
        """Return the window as SQL, such as `RANGE 10 SECOND of S`."""
        return f"{self.describe()['window']} of {', '.join(self.source_names)}"
