"""Figures of the results of a preference: how many, how late, and of which promise `[pt 5]`.

An entry is *promising* whose priority, when it is made, lies in a bucket above that of the 0.9 quantile of the
priorities made before in its shard. Those whose work is done at once have none. Quantiles are those of DDSketch: they
differ from the exact ones by at most `ACCURACY` of the value, and are a function of the values alone, whatever rounds
these came in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.arrays import Float64s, Int64s, Records
from penstock.compilation import loop
from penstock.expressions.sketches.dd_sketch import OFFSET, buckets, values_of
from penstock.figures import OTHER_DELAYS, PREFERENCE_RESULTS, PROMISING_DELAYS, RESULTS_OF_TWO, TICKS_APART
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Bools
from penstock.physical.synopses.preferences.layout import IS_PROMISING, NOT_PROMISING
from penstock.storage.documents import Document, integer, integers, nested

#: Relative error of the quantiles of priorities and delays.
ACCURACY = 0.02
#: The code of a finite number other than 0 is at most this far from `OFFSET`: the logarithm of the least positive
#: DOUBLE by the base of `ACCURACY` is about -18,613.
_HALF = 1 << 15
#: From so many codes on they are found by a table.
_MANY = 2_000


@dataclass
class BucketCounts:
    """How many values lie in each bucket. codes: ascending; counts: of each."""

    codes: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    counts: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, values: Float64s) -> None:
        """Count values."""
        places = self.places_of(values)
        np.add.at(self.counts, places, 1)

    def places_of(self, values: Float64s) -> Int64s:
        """Return the places in `counts` of the buckets of values."""
        return self._places(buckets(np.ascontiguousarray(values), ACCURACY))

    def _places(self, fresh: Int64s) -> Int64s:
        """Return the places of codes among all, with room for new ones."""
        places = np.empty(len(fresh), np.int64)
        if _find(self.codes, fresh, places):
            self._make_room(fresh[places < 0])
            _find(self.codes, fresh, places)
        return places

    def _make_room(self, fresh: Int64s) -> None:
        codes = np.union1d(self.codes, fresh)
        if len(codes) > len(self.codes):
            counts = np.zeros(len(codes), np.int64)
            counts[np.searchsorted(codes, self.codes)] = self.counts
            self.codes, self.counts = codes, counts

    def by_code(self) -> dict[int, int]:
        """Return the counts of the buckets that hold values, by their codes."""
        pairs = zip(self.codes.tolist(), self.counts.tolist(), strict=True)
        return {code: count for code, count in pairs if count}

    def flat(self) -> list[int]:
        """Return codes and counts in turn, as `of` reads them."""
        return [int(n) for n in np.column_stack([self.codes, self.counts]).ravel()]

    @staticmethod
    def of(flat: list[int]) -> BucketCounts:
        pairs = np.array(flat, np.int64).reshape(-1, 2)
        return BucketCounts(pairs[:, 0].copy(), pairs[:, 1].copy())


def quantile_of(counts: Mapping[int, float], share: float) -> float | None:
    """Return a quantile of the values of which bucket codes are counted; None where there are none."""
    codes = np.array(sorted(counts), np.int64)
    sums = np.cumsum([counts[code] for code in codes.tolist()])
    if not len(codes) or not sums[-1]:
        return None
    rank = int(share * 100) * (int(sums[-1]) - 1) // 100
    return float(values_of(codes[[int(np.searchsorted(sums, rank, side="right"))]], ACCURACY)[0])


@loop
def _dense(code: int) -> int:
    """Return the place in a table of the code of a finite number, -1 of another code."""
    size = abs(code) - OFFSET + _HALF
    if size < 0 or size >= 2 * _HALF:
        return -1
    return size if code > 0 else size + 2 * _HALF


@loop
def _find(codes: Int64s, fresh: Int64s, places: Int64s) -> int:
    """Find the places of codes among ascending ones, -1 for none; return how many are not there."""
    size, missing = codes.shape[0], 0
    tabled = fresh.shape[0] >= _MANY
    table = np.full(4 * _HALF if tabled else 0, -1, np.int32)
    if tabled:
        for place in range(size):
            at = _dense(codes[place])
            if at >= 0:
                table[at] = place
    for k in range(fresh.shape[0]):
        at = _dense(fresh[k]) if tabled else -1
        if at >= 0:
            places[k] = table[at]
        else:
            place = np.searchsorted(codes, fresh[k])
            places[k] = place if place < size and codes[place] == fresh[k] else -1
        missing += places[k] < 0
    return missing


#: What `rate_next` has come to: the bucket of the quantile, the values below it, and all values.
_AT, _BELOW, _KNOWN, _CURSOR = range(4)


@loop
def rate_next(place: int, counts: Int64s, cursor: Int64s) -> bool:
    """Count a value at the place of its bucket; return whether it is above that of the 0.9 quantile of all before."""
    above = False
    if cursor[_KNOWN]:
        rank = 9 * (cursor[_KNOWN] - 1) // 10
        while cursor[_BELOW] > rank:
            cursor[_AT] -= 1
            cursor[_BELOW] -= counts[cursor[_AT]]
        while cursor[_BELOW] + counts[cursor[_AT]] <= rank:
            cursor[_BELOW] += counts[cursor[_AT]]
            cursor[_AT] += 1
        above = place > cursor[_AT]
    counts[place] += 1
    cursor[_KNOWN] += 1
    cursor[_BELOW] += place < cursor[_AT]
    return above


@loop
def _rate_all(places: Int64s, counts: Int64s, cursor: Int64s, above: Bools) -> None:
    for k in range(places.shape[0]):
        above[k] = rate_next(places[k], counts, cursor)


class ResultFigures:
    """Figures of results that were emitted, in one shard."""

    def __init__(self) -> None:
        self._priorities = BucketCounts()
        #: Delays in ticks: of results of promising entries, and of the others.
        self._delays = {"promising": BucketCounts(), "other": BucketCounts()}
        self._results = 0
        #: Of results of two elements, the sum of |ts1 - ts2| in ticks, and their number.
        self._apart, self._pairs = 0, 0

    def rating(self, priorities: Float64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return what `rate_next` is called with for the priorities of entries: their places, counts, and where it is.
        Those are rated for which it is called, in the order in which the entries are made."""
        places, cursor = self._priorities.places_of(priorities), np.zeros(_CURSOR, np.int64)
        cursor[_KNOWN] = self._priorities.counts.sum()
        return places, self._priorities.counts, cursor

    def rate(self, priorities: Float64s) -> Bools:
        """Return which of the priorities of entries, in the order in which these are made, are promising."""
        above = np.zeros(len(priorities), np.bool_)
        _rate_all(*self.rating(priorities), above)
        return above

    def add(self, rows: Records, apart: Int64s | None = None) -> None:
        """Count results. rows: of `RESULT`; apart: of results of two elements, |ts1 - ts2|."""
        if not len(rows):
            return
        self._count(len(rows), apart)
        promising = rows["promising"]
        delays = (rows["at"] - rows["made"]).astype(np.float64)
        for name, kind in (("promising", IS_PROMISING), ("other", NOT_PROMISING)):
            chosen = promising == kind
            if chosen.any():
                self._delays[name].add(delays[chosen])

    def add_prompt(self, results: int, apart: Int64s | None = None) -> None:
        """Count results of entries without a priority. apart: as in `add`."""
        self._count(results, apart)

    def _count(self, results: int, apart: Int64s | None) -> None:
        self._results += results
        if apart is not None and results:
            # As Python integers where the sum may be longer than 64 bits: spans of time may be long.
            short = int(apart.max()) < (1 << 62) // results
            self._apart += int(apart.sum()) if short else sum(apart.tolist())
            self._pairs += results

    def figures(self) -> FigureValues:
        """Return figures that add up over shards."""
        return {
            PREFERENCE_RESULTS: self._results,
            TICKS_APART: self._apart,
            RESULTS_OF_TWO: self._pairs,
            PROMISING_DELAYS: self._delays["promising"].by_code(),
            OTHER_DELAYS: self._delays["other"].by_code(),
        }

    def marks(self) -> Document:
        return {
            "priorities": self._priorities.flat(),
            "delays": {name: delays.flat() for name, delays in self._delays.items()},
            "results": self._results,
            "apart": self._apart,
            "pairs": self._pairs,
        }

    def restore(self, marks: Document) -> None:
        self._priorities = BucketCounts.of(integers(marks, "priorities"))
        delays = nested(marks, "delays")
        self._delays = {name: BucketCounts.of(integers(delays, name)) for name in self._delays}
        self._results, self._apart = integer(marks, "results"), integer(marks, "apart")
        self._pairs = integer(marks, "pairs")
