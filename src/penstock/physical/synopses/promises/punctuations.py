"""Punctuations that a stream keeps: no element that comes later fulfils one of them.

They stand in *levels* of falling size, each a part of all of them that never changes, so that a new one costs no copy
of the others; levels of like size are merged. In a level they are grouped by *shape*: the columns of which they name
one value, and those of which they name bounds. Rows that may fulfil one are found by fingerprints of the former
columns, once a level and shape; what is found is compared value by value: such a row becomes a dead letter.
What another one contains is dropped, so that `<=` of one column leaves the greatest alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.properties.punctuations import (
    Condition,
    PlainValue,
    Punctuation,
    ValueBounds,
    plain_values,
    typed_array,
)
from penstock.arrays import Bools, Int64s
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints

#: Kept punctuations of a stream at most, unless a setting says otherwise.
MOST_PUNCTUATIONS = 1_000_000

Values: TypeAlias = "tuple[PlainValue | None, ...]"


@dataclass(frozen=True)
class _Shape:
    """Positions of the columns of which punctuations name one value, and of those of which they name bounds."""

    points: tuple[int, ...]
    ranges: tuple[int, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        return *self.points, *self.ranges


Box: TypeAlias = tuple[ValueBounds, ...]
#: A value with whether it is there, in the order of bounds.
_End: TypeAlias = "tuple[bool, PlainValue, bool]"
#: Among more bounds of several columns than these none is looked for that another contains.
_FEW = 64


class _Boxes:
    """The bounds of punctuations that name the same values.

    Those of one column are in the order of their lower bounds, which is that of the upper ones too, since none contains
    another: if any has a value, the last has it that begins at or below the value.
    """

    def __init__(self, boxes: Sequence[Box]) -> None:
        self._lows: list[_End] | None = None
        if boxes and len(boxes[0]) == 1:
            self.all = _none_contained(boxes)
            self._lows = [_low(bounds) for (bounds,) in self.all]
        elif len(boxes) <= _FEW:
            self.all = []
            for box in dict.fromkeys(boxes):
                if not _contained(box, self.all):
                    self.all = [*(one for one in self.all if not _contained(one, [box])), box]
        else:
            self.all = list(dict.fromkeys(boxes))

    def has(self, values: Sequence[PlainValue | None]) -> bool:
        """Return whether values lie within the bounds of one of them."""
        if self._lows is None:
            return any(all(map(ValueBounds.has, box, values)) for box in self.all)
        (value,) = values
        if value is None or value != value:
            return False
        place = bisect_right(self._lows, (True, value, False)) - 1
        return place >= 0 and self.all[place][0].has(value)

    def contain(self, ranges: Sequence[Condition]) -> bool:
        """Return whether one of them contains conditions, each of one value or bounds."""
        if self._lows is None:
            return any(all(map(_within, ranges, box)) for box in self.all)
        (one,) = ranges
        low = (
            _low(one) if isinstance(one, ValueBounds) else (one[0] is not None, 0 if one[0] is None else one[0], False)
        )
        place = bisect_right(self._lows, low) - 1
        return place >= 0 and _within(one, self.all[place][0])


def _none_contained(boxes: Sequence[Box]) -> list[Box]:
    """Return bounds of one column without those that others contain, in order."""
    by_high = sorted((bounds for (bounds,) in boxes), key=_high, reverse=True)
    kept: list[Box] = []
    reached: _End | None = None
    for bounds in sorted(by_high, key=_low):
        if reached is None or _high(bounds) > reached:
            kept.append((bounds,))
            reached = _high(bounds)
    return kept


def _contained(box: Box, others: Sequence[Box]) -> bool:
    return any(all(map(ValueBounds.contains, other, box)) for other in others)


def _low(bounds: ValueBounds) -> _End:
    return bounds.low is not None, 0 if bounds.low is None else bounds.low, bounds.open_low


def _high(bounds: ValueBounds) -> _End:
    return bounds.high is None, 0 if bounds.high is None else bounds.high, not bounds.open_high


def _within(condition: Condition, bounds: ValueBounds) -> bool:
    """Return whether what fulfils a condition of one value, or bounds, lies within bounds."""
    return bounds.contains(condition) if isinstance(condition, ValueBounds) else bounds.has(condition[0])


def _shape_of(one: Punctuation) -> _Shape:
    """Return the shape of a punctuation with one value a column."""
    ranges = tuple(c for c, how in one.conditions if isinstance(how, ValueBounds))
    return _Shape(tuple(c for c, _ in one.conditions if c not in ranges), ranges)


@dataclass(frozen=True)
class Level:
    """Some of the punctuations of a stream. groups: by shape, by the values that are named, their bounds."""

    groups: Mapping[_Shape, Mapping[Values, _Boxes]]

    @staticmethod
    def of(punctuations: Iterable[Punctuation]) -> Level:
        """Return the level of punctuations with one value a column."""
        boxes: dict[_Shape, dict[Values, list[Box]]] = {}
        for one in punctuations:
            points = [(c, how) for c, how in one.conditions if not isinstance(how, ValueBounds)]
            ranges = [(c, how) for c, how in one.conditions if isinstance(how, ValueBounds)]
            shape = _Shape(tuple(c for c, _ in points), tuple(c for c, _ in ranges))
            box = tuple(how for _, how in ranges)
            boxes.setdefault(shape, {}).setdefault(tuple(value for _, (value,) in points), []).append(box)
        return Level({s: {values: _Boxes(own) for values, own in group.items()} for s, group in boxes.items()})

    @cached_property
    def count(self) -> int:
        return sum(len(boxes.all) for group in self.groups.values() for boxes in group.values())

    def __iter__(self) -> Iterator[Punctuation]:
        for shape, group in self.groups.items():
            for values, boxes in group.items():
                for box in boxes.all:
                    conditions: list[tuple[int, Condition]] = [*zip(shape.ranges, box, strict=True)]
                    conditions += [(c, (value,)) for c, value in zip(shape.points, values, strict=True)]
                    yield Punctuation(tuple(sorted(conditions, key=lambda one: one[0])))

    def contains(self, one: Punctuation) -> bool:
        """Return whether each row that fulfils a punctuation, with one value a column, fulfils one of these."""
        return self._contains(one, None)

    def without_contained(self) -> Level:
        """Return the level without punctuations that those of another shape contain: `a = 3` behind `a <= 5`."""
        if len(self.groups) == 1:
            return self
        kept = [one for one in self if not self._contains(one, _shape_of(one))]
        return self if len(kept) == self.count else Level.of(kept)

    def _contains(self, one: Punctuation, but: _Shape | None) -> bool:
        """Return what `contains` does, of punctuations of other shapes than `but`."""
        conditions = dict(one.conditions)
        for shape, group in self.groups.items():
            if shape == but or not set(shape.columns) <= conditions.keys():
                continue
            values: list[PlainValue | None] = []
            for column in shape.points:
                point = conditions[column]
                values += [] if isinstance(point, ValueBounds) else point
            if len(values) < len(shape.points) or (boxes := group.get(tuple(values))) is None:
                continue
            if boxes.contain([conditions[column] for column in shape.ranges]):
                return True
        return False

    @cached_property
    def _prints(self) -> dict[tuple[_Shape, tuple[pa.DataType, ...]], UInt64s]:
        return {}

    def _sorted_prints(self, shape: _Shape, types: tuple[pa.DataType, ...]) -> UInt64s:
        """Return the fingerprints of the values that punctuations of a shape name, in order."""
        if (shape, types) not in self._prints:
            columns = zip(*self.groups[shape], strict=True)
            arrays = [typed_array(column, type_) for column, type_ in zip(columns, types, strict=True)]
            self._prints[shape, types] = np.sort(fingerprints(arrays, len(self.groups[shape]))[0])
        return self._prints[shape, types]

    def _candidates(self, shape: _Shape, columns: Mapping[int, pa.Array], length: int) -> Int64s:
        """Return the rows that may fulfil a punctuation of a shape."""
        may: Bools = np.ones(length, np.bool_)
        if shape.points:
            arrays = [columns[c] for c in shape.points]
            known = self._sorted_prints(shape, tuple(one.type for one in arrays))
            own = fingerprints(arrays, length)[0]
            places = np.minimum(np.searchsorted(known, own), len(known) - 1)
            may = known[places] == own
        else:
            (boxes,) = self.groups[shape].values()
            for place, column in enumerate(shape.ranges):
                may &= _in_hull([box[place] for box in boxes.all], columns[column])
        return np.flatnonzero(may)

    def fulfilled(self, columns: Mapping[int, pa.Array], length: int) -> Bools:
        """Return which rows fulfil a punctuation."""
        found: Bools = np.zeros(length, np.bool_)
        for shape, group in self.groups.items():
            rows = self._candidates(shape, columns, length)
            if len(rows):
                values = [plain_values(columns[c].take(pa.array(rows))) for c in shape.columns]
                own = zip(*values, strict=True)
                found[rows] |= [_is_among(value, group, len(shape.points)) for value in own]
        return found


def _is_among(values: Values, group: Mapping[Values, _Boxes], points: int) -> bool:
    """Return whether values fulfil a punctuation of a group. points: as many of them are named."""
    boxes = group.get(values[:points])
    return boxes is not None and boxes.has(values[points:])


def _in_hull(bounds: Sequence[ValueBounds], column: pa.Array) -> Bools:
    """Return which values lie between the least and the greatest bound."""
    may: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    for compare, ends, pick in (
        (pc.greater_equal, [one.low for one in bounds], min),
        (pc.less_equal, [one.high for one in bounds], max),
    ):
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            limit = typed_array([pick(known)], column.type)[0]
            may = may & pc.fill_null(compare(column, limit), False).to_numpy(zero_copy_only=False)
    return may


@dataclass(frozen=True)
class Punctuations:
    """The punctuations that a stream keeps.

    Args:
        most: as many are kept at most.
    """

    most: int = MOST_PUNCTUATIONS
    levels: tuple[Level, ...] = field(default=(), repr=False)

    @cached_property
    def _count(self) -> int:
        return sum(level.count for level in self.levels)

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        """Return True: without any it has its limit."""
        return True

    def __iter__(self) -> Iterator[Punctuation]:
        """Yield them; their order is arbitrary, and the same for the same history."""
        for level in self.levels:
            yield from level

    @cached_property
    def columns(self) -> frozenset[int]:
        """Return the positions of the columns that they name."""
        return frozenset(c for level in self.levels for shape in level.groups for c in shape.columns)

    def has_room(self, one: Punctuation) -> bool:
        """Return whether one more may be kept."""
        return len(self) + one.size <= self.most or not self._news([one])

    def _news(self, ones: Iterable[Punctuation]) -> list[Punctuation]:
        """Return, with one value a column, what is not kept yet of punctuations that some row may fulfil."""
        singles = (single for one in ones if not one.is_empty for single in one.single())
        return [one for one in singles if not any(level.contains(one) for level in self.levels)]

    def added(self, ones: Iterable[Punctuation]) -> Punctuations:
        """Return them with others, which have room."""
        news = self._news(ones)
        if not news:
            return self
        levels = [*self.levels, Level.of(news).without_contained()]
        while len(levels) > 1 and levels[-2].count <= 2 * levels[-1].count:
            last, before = levels.pop(), levels.pop()
            levels.append(Level.of(one for level in (before, last) for one in level).without_contained())
        return Punctuations(self.most, tuple(levels))

    def fulfilled(self, columns: Mapping[int, pa.Array], length: int, news: Sequence[tuple[int, Punctuation]]) -> Bools:
        """Return which of `length` rows fulfil a punctuation that came before them.

        Args:
            columns: of the rows, by position in the declaration: those that punctuations name.
            news: punctuations among the rows, each with the number of rows before it.
        """
        found: Bools = np.zeros(length, np.bool_)
        for level in self.levels:
            found |= level.fulfilled(columns, length)
        singles = [(place, each) for place, one in news if not one.is_empty for each in one.single()]
        _mark_behind(singles, columns, length, found)
        return found


def _mark_behind(
    news: Sequence[tuple[int, Punctuation]], columns: Mapping[int, pa.Array], stop: int, found: Bools
) -> None:
    """Mark the rows before `stop` that fulfil a punctuation that came before them. news: in order. Most rows fulfil
    none of all; the others are found by halves."""
    if not news or news[0][0] >= stop:
        return
    start = news[0][0]
    rows = {c: column.slice(start, stop - start) for c, column in columns.items()}
    own = Level.of(one for _, one in news).fulfilled(rows, stop - start)
    if not own.any():
        return
    if news[-1][0] == start:
        found[start:stop] |= own
        return
    middle = max(1, len(news) // 2)
    pivot = min(news[middle][0], stop)
    _mark_behind(news[:middle], columns, pivot, found)
    before = [(pivot, one) for _, one in news[:middle]]
    _mark_behind(before, columns, stop, found)
    _mark_behind(news[middle:], columns, stop, found)
