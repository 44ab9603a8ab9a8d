"""What the sender of a stream promises of it, and what of that holds of the rows of an operator.

A promise is declared on a stream and defined on all elements of that stream that were accepted, whatever a query
selects of them (docs/promises.md). Operators pass it on: the promise, and the columns that its columns became.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar


class PromiseMode(enum.Enum):
    """What happens to an element that breaks a promise."""

    #: It is an element like any other; the promise bounds state.
    ASSERTED = "ASSERTED"
    #: It is a dead letter.
    CHECKED = "CHECKED"
    #: It is counted; the promise changes nothing.
    OBSERVED = "OBSERVED"


@dataclass(frozen=True)
class Within:
    """How closely data keep to a promise: a number of rows of the stream, or a length of time in its ticks.

    Args:
        rows, ticks: one of them; the other is None.
    """

    rows: int | None = 0
    ticks: int | None = None


@dataclass(frozen=True)
class Promise:
    """A promise of a declared stream.

    Args:
        columns: positions of declared columns of the stream.
        name, mode: neither changes when a value is closed, so they do not count for the identity of a plan.
    """

    WORDS: ClassVar[str] = ""

    columns: tuple[int, ...]
    name: str = field(default="", compare=False, repr=False, kw_only=True)
    mode: PromiseMode = field(default=PromiseMode.ASSERTED, compare=False, repr=False, kw_only=True)

    @property
    def declared(self) -> tuple[object, ...]:
        """Return the promise with what does not count for its identity."""
        return self, self.name, self.mode


@dataclass(frozen=True)
class Unique(Promise):
    """No two rows have the same values."""

    WORDS: ClassVar[str] = "UNIQUE"


@dataclass(frozen=True)
class ForeignKey(Promise):
    """The row of the parent stream with these values has come, or comes within `within` of that stream.

    Args:
        parent: the name of that stream.
        parent_columns: positions of its declared columns, in the order of `columns`.
    """

    WORDS: ClassVar[str] = "FOREIGN KEY"

    parent: str
    parent_columns: tuple[int, ...]
    within: Within = Within()


@dataclass(frozen=True)
class Clustered(Promise):
    """Between two rows of one value there are at most `within` rows of other values, or passes at most that time."""

    WORDS: ClassVar[str] = "CLUSTERED BY"

    within: Within = Within()


@dataclass(frozen=True)
class Ordered(Promise):
    """A row more than `within` later has a value of the one column that is not smaller; descending: not greater."""

    WORDS: ClassVar[str] = "ORDERED BY"

    descending: bool = False
    within: Within = Within()


@dataclass(frozen=True)
class Punctuated(Promise):
    """Punctuations come in the stream: no row follows that fulfils one. Those all of whose columns are among `columns`
    are meant, so what passes it on may have fewer."""

    WORDS: ClassVar[str] = "PUNCTUATED BY"


@dataclass(frozen=True)
class Base:
    """A promise of the stream `source`."""

    source: str
    promise: Promise


@dataclass(frozen=True)
class PassedPromise:
    """A promise of declared streams that holds of the rows of an operator.

    Args:
        bases: one, or one of every branch of a UNION ALL: then a value is closed when it is in every branch.
        columns: of the operator, in the order of the promise's columns.
        slide, align: the boundaries at which the rows enter, where a window has SLIDE; only the next join uses such a
            promise.
    """

    bases: tuple[Base, ...]
    columns: tuple[int, ...]
    slide: int | None = None
    align: int = 0

    @property
    def promise(self) -> Promise:
        """Return the promise of the first base; those of the others are of the same kind."""
        return self.bases[0].promise

    def moved(self, position: Callable[[int], int | None]) -> PassedPromise | None:
        """Return the promise over the columns at other positions; None where one of them is not there. Of punctuations
        those over the columns that are there are left."""
        if isinstance(self.promise, Punctuated):
            left = self.over({c for c in self.columns if position(c) is not None})
            return None if left is None else replace(left, columns=tuple(position(c) or 0 for c in left.columns))
        columns = [position(c) for c in self.columns]
        if None in columns:
            return None
        return replace(self, columns=tuple(c for c in columns if c is not None))

    def over(self, columns: Collection[int]) -> PassedPromise | None:
        """Return of punctuations those over some of the columns; None where none of these is among them."""
        kept = [place for place, column in enumerate(self.columns) if column in columns]
        if not kept:
            return None
        bases = tuple(
            replace(base, promise=replace(base.promise, columns=tuple(base.promise.columns[place] for place in kept)))
            for base in self.bases
        )
        return replace(self, bases=bases, columns=tuple(self.columns[place] for place in kept))

    def within(self, columns: Collection[int]) -> PassedPromise | None:
        """Return it where all of its columns are among some; of punctuations those over some of them. None where none
        is left."""
        if isinstance(self.promise, Punctuated):
            return self.over(columns)
        return self if set(self.columns) <= set(columns) else None

    def is_among(self, promises: Promises) -> bool:
        """Return whether it is one of some promises, or the part of one over fewer columns."""
        if not isinstance(self.promise, Punctuated):
            return self in promises
        return any(isinstance(one.promise, Punctuated) and one.over(self.columns) == self for one in promises)


Promises = tuple[PassedPromise, ...]
NO_PROMISES: Promises = ()


def moved_promises(promises: Promises, position: Callable[[int], int | None]) -> Promises:
    """Return those `promises` all of whose columns are still there, over their new positions."""
    return tuple(one for one in (p.moved(position) for p in promises) if one is not None)


def promises_of_union(branches: Sequence[Promises]) -> Promises:
    """Return the promises of a UNION ALL: an order of one direction and a reference that every branch has.

    Of several orders of one column the first of each branch counts.
    """
    found: list[PassedPromise] = []
    for one in branches[0]:
        members = [next((p for p in branch if _joins_in_union(one, p)), None) for branch in branches]
        if all(member is not None and member.slide is None for member in members):
            bases = tuple(base for member in members if member is not None for base in member.bases)
            joint = PassedPromise(bases, one.columns)
            found += [] if joint in found else [joint]
    spoken = _punctuations_of_union(branches)
    return tuple(found) if spoken is None else (*found, spoken)


def _punctuations_of_union(branches: Sequence[Promises]) -> PassedPromise | None:
    """Return the punctuations of a UNION ALL: over columns of which every branch has some."""
    members: list[PassedPromise] = []
    for branch in branches:
        members += [one for one in branch if isinstance(one.promise, Punctuated) and one.slide is None][:1]
    if len(members) < len(branches):
        return None
    common = set(members[0].columns).intersection(*(one.columns for one in members))
    left = [one.over(sorted(common)) for one in members]
    # Each names its columns in the order of their places.
    ordered = [_in_order(one) for one in left if one is not None]
    if len(ordered) < len(branches):
        return None
    return PassedPromise(tuple(base for one in ordered for base in one.bases), ordered[0].columns)


def _in_order(one: PassedPromise) -> PassedPromise:
    """Return punctuations with their columns in ascending order."""
    places = sorted(range(len(one.columns)), key=lambda place: one.columns[place])
    bases = tuple(
        replace(base, promise=replace(base.promise, columns=tuple(base.promise.columns[place] for place in places)))
        for base in one.bases
    )
    return replace(one, bases=bases, columns=tuple(one.columns[place] for place in places))


def _joins_in_union(one: PassedPromise, other: PassedPromise) -> bool:
    if one.columns != other.columns:
        return False
    mine, theirs = one.promise, other.promise
    if isinstance(mine, Ordered) and isinstance(theirs, Ordered):
        return mine.descending == theirs.descending
    if isinstance(mine, ForeignKey) and isinstance(theirs, ForeignKey):
        return (mine.parent, mine.parent_columns) == (theirs.parent, theirs.parent_columns)
    return False
