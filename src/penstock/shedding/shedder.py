"""The tuples held under one budget: the arrays of the compiled machine, and how they grow, are saved and restored.

Contract: after every arrival the weight held is at most the budget; what is dropped depends on the arrivals alone, in
their order, never on how they were cut into calls, nor on the numbers that the caller gives to values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.shedding import machine
from penstock.shedding.contract import Shedding
from penstock.shedding.layout import (
    ALWAYS,
    BEGIN_,
    BUDGET,
    COUNT,
    COVERED,
    DROP_COLUMNS,
    END_,
    ENTRY_COLUMNS,
    EXPIRES,
    EXPIRIES,
    EXTRANEOUS,
    FREE_ENTRIES,
    FREE_STRETCHES,
    HEAD,
    HEAPS,
    HELD,
    LAST,
    LAST_END,
    LEAST_BEGIN,
    LOST_LEFT,
    LOST_RIGHT,
    NEVER,
    NUMBER,
    NUMBERS,
    RANK,
    SAMPLE_BELOW,
    SAMPLE_HELD,
    SAMPLED,
    SEEKS,
    SLOT,
    STRETCH,
    STRETCH_COLUMNS,
    THRESHOLD,
    TIE,
    VALUE_COLUMNS,
    VALUE_RANK,
    VANISHED,
    WEIGHT,
    Int64s,
)
from penstock.shedding.policies import DropUnit

#: The most ArrivingTuples in one call of the compiled loop; bounds the room that is kept for them.
SLICE = 1 << 16

#: The columns of an entry that a checkpoint keeps; the others follow.
SAVED = (SLOT, BEGIN_, END_, EXPIRES, NUMBER, RANK, TIE, WEIGHT)
#: Columns of a saved entry behind these: the largest end that its value has shown, and, at the first entry of a
#: stretch, the ticks lost at its two ends.
_LAST_END, _LEFT, _RIGHT = range(len(SAVED), len(SAVED) + 3)
SAVED_COLUMNS = len(SAVED) + 3


@dataclass(frozen=True)
class ArrivingTuples:
    """Tuples that arrive, in order, as int64 arrays of one length.

    Args:
        slots: the value of each, a number that the caller chooses; equal values have equal numbers.
        ranks: a hash of the value, 63 bits.
        begins, ends: the period [begin, end).
        stamps: the timestamp.
        clocks: the time of the arrival on the clock of the window: the timestamp, or a count of arrivals.
        expires: when the tuple leaves the window, on that clock.
        weights: what it counts in the budget.
    """

    slots: Int64s
    ranks: Int64s
    begins: Int64s
    ends: Int64s
    stamps: Int64s
    clocks: Int64s
    expires: Int64s
    weights: Int64s

    def __len__(self) -> int:
        return len(self.slots)

    def part(self, start: int, stop: int) -> ArrivingTuples:
        """Return the arrivals from `start` to before `stop`."""
        return ArrivingTuples(*(np.ascontiguousarray(column[start:stop], np.int64) for column in vars(self).values()))

    def chosen(self, rows: Int64s) -> ArrivingTuples:
        """Return some of the arrivals."""
        return ArrivingTuples(*(column[rows] for column in vars(self).values()))


@dataclass(frozen=True)
class SheddingOutcome:
    """What arrivals did.

    Args:
        entered: per arrival 1 for a new entry, 0 for one equal to an entry, 2 for one refused by a threshold.
        drops: a row per tuple dropped, with the columns DROPPED.. of `layout.py`.
    """

    entered: Int64s
    drops: Int64s


@dataclass(frozen=True)
class SavedTuples:
    """All state of a shedder, as arrays: entries and the sample with `SAVED_COLUMNS` columns, and single numbers."""

    entries: Int64s
    sample: Int64s
    numbers: Int64s


class Shedder:
    """The tuples held under one budget."""

    def __init__(self, shedding: Shedding, budget: int) -> None:
        self.shedding = shedding
        self._parameters = shedding.parameters()
        self._numbers = np.zeros(NUMBERS, np.int64)
        self._numbers[BUDGET] = budget
        self._numbers[LEAST_BEGIN] = ALWAYS
        self._numbers[THRESHOLD] = NEVER
        self._entries = np.empty((0, ENTRY_COLUMNS), np.int64)
        self._stretches = np.empty((0, STRETCH_COLUMNS), np.int64)
        self._values = np.empty((0, VALUE_COLUMNS), np.int64)
        self._items = np.empty((2 * HEAPS, 0), np.int64)
        self._places = np.empty((HEAPS, 0), np.int64)
        self._sizes = np.zeros(HEAPS, np.int64)
        self._free_entries = np.empty(0, np.int64)
        self._free_stretches = np.empty(0, np.int64)
        self.arrived = 0

    # --- figures

    @property
    def held(self) -> int:
        """Return the weight held, the sample included."""
        return int(self._numbers[HELD] + self._numbers[SAMPLE_HELD])

    @property
    def entries(self) -> int:
        """Return the number of tuples held, without the sample."""
        return int(self._sizes[EXPIRIES])

    @property
    def covered(self) -> int:
        """Return the ticks of all stretches together."""
        return int(self._numbers[COVERED])

    @property
    def last_end(self) -> int:
        """Return the largest end of what is held."""
        return int(self._entries[self._items[EXPIRIES, : self._sizes[EXPIRIES]], END_].max(initial=ALWAYS))

    @property
    def extraneous(self) -> int:
        """Return how many stretches drops have made by cutting others."""
        return int(self._numbers[EXTRANEOUS])

    @property
    def vanished(self) -> int:
        """Return how many stretches have gone with a drop of their last tuple."""
        return int(self._numbers[VANISHED])

    @property
    def budget(self) -> int:
        return int(self._numbers[BUDGET])

    def set_budget(self, budget: int) -> None:
        """Change the budget; the next arrival brings what is held below it."""
        self._numbers[BUDGET] = budget

    def refuse(self, threshold: int, clock: int, stamp: int) -> Int64s:
        """Refuse the values of at least this rank from now on, and drop what is held of them, the largest rank first.

        The threshold never rises again: a value that is kept again would be emitted as if it began then.

        Args:
            clock: what has left the window by then is not dropped.
            stamp: the timestamp of the drops.

        Returns:
            The drops, rows as of a `SheddingOutcome`.
        """
        none = np.empty((0, DROP_COLUMNS), np.int64)
        if threshold >= self.refuses_from:
            return none
        self.expire(clock)
        entries = int(self._sizes[EXPIRIES])
        self._make_room(entries if self.shedding.sample else 0, 0)
        state = self._state()
        machine.begin_sample(*state[:-1])
        self._numbers[THRESHOLD] = threshold
        refused = np.flatnonzero((self._values[:, LAST] >= 0) & (self._values[:, VALUE_RANK] >= threshold))
        drops, dropped = np.empty((entries, DROP_COLUMNS), np.int64), 0
        for slot in refused[np.argsort(-self._values[refused, VALUE_RANK], kind="stable")]:
            dropped = machine.drop_value(*state, slot, stamp, drops, dropped)
        return drops[:dropped]

    @property
    def sample_share(self) -> float:
        """Return the share of the values that the sample holds now; 0 before shedding begins."""
        return float(self._numbers[SAMPLE_BELOW]) / 2.0**63

    def rows(self) -> Int64s:
        """Return the entries, columns as in `layout.py`, in no order."""
        return self._entries[self._items[EXPIRIES, : self._sizes[EXPIRIES]]]

    def sample_rows(self) -> Int64s:
        """Return the entries of the sample."""
        return self._entries[self._items[SAMPLED, : self._sizes[SAMPLED]]]

    # --- arrivals

    def arrive(self, arrivals: ArrivingTuples) -> SheddingOutcome:
        """Take arrivals in order."""
        outcomes = [self._arrive(arrivals.part(k, k + SLICE)) for k in range(0, len(arrivals), SLICE)]
        if not outcomes:
            return SheddingOutcome(np.empty(0, np.int64), np.empty((0, DROP_COLUMNS), np.int64))
        return SheddingOutcome(
            np.concatenate([one.entered for one in outcomes]), np.concatenate([one.drops for one in outcomes])
        )

    def _arrive(self, arrivals: ArrivingTuples) -> SheddingOutcome:
        count = len(arrivals)
        held = int(self._sizes[EXPIRIES])
        self._make_room(2 * count + (held if self.shedding.sample else 0) + 2, int(arrivals.slots.max()) + 1)
        entered = np.empty(count, np.int64)
        drops = np.empty((held + count, DROP_COLUMNS), np.int64)
        dropped = machine.run(*self._state(), self.arrived, *vars(arrivals).values(), entered, drops)
        self.arrived += count
        return SheddingOutcome(entered, drops[:dropped])

    def expire(self, clock: int) -> None:
        """Remove what has left the window at `clock`."""
        machine.expire(*self._state(), clock)

    def _state(self) -> tuple[Int64s, ...]:
        return (
            self._items,
            self._places,
            self._sizes,
            self._entries,
            self._stretches,
            self._values,
            self._numbers,
            self._parameters,
            self._free_entries,
            self._free_stretches,
        )

    def _make_room(self, entries: int, slots: int) -> None:
        """Make room for that many further entries, and for slots below a number."""
        if slots > len(self._values):
            more = np.empty((max(slots, 2 * len(self._values)), VALUE_COLUMNS), np.int64)
            more[:] = (-1, 0, ALWAYS, 0)
            more[: len(self._values)] = self._values
            self._values = more
        missing = entries - int(self._numbers[FREE_ENTRIES])
        had = len(self._entries)
        if missing > 0:
            size = max(had + missing, 2 * had)
            self._entries = _grown(self._entries, size)
            self._stretches = _grown(self._stretches, size)
            for name, count in (("_free_entries", FREE_ENTRIES), ("_free_stretches", FREE_STRETCHES)):
                free, used = _grown(getattr(self, name), size), int(self._numbers[count])
                free[used : used + size - had] = np.arange(had, size)
                self._numbers[count] += size - had
                setattr(self, name, free)
        room = max(len(self._entries), len(self._values))
        if room > self._items.shape[1]:
            items, places = np.zeros((2 * HEAPS, room), np.int64), np.full((HEAPS, room), -1, np.int64)
            items[:, : self._items.shape[1]], places[:, : self._items.shape[1]] = self._items, self._places
            self._items, self._places = items, places

    # --- checkpoints

    def saved(self) -> SavedTuples:
        """Return all state, as arrays that do not change later."""
        places = self._items[EXPIRIES, : self._sizes[EXPIRIES]]
        places = places[np.argsort(self._entries[places, NUMBER])]
        rows = self._entries[places]
        last_ends = self._values[rows[:, SLOT], LAST_END]
        first = self._stretches[rows[:, STRETCH], HEAD] == places
        lost = self._stretches[rows[:, STRETCH]][:, (LOST_LEFT, LOST_RIGHT)] * first[:, None]
        sample = self.sample_rows()
        sample = sample[np.argsort(sample[:, NUMBER])]
        none = np.zeros((len(sample), 3), np.int64)
        return SavedTuples(
            np.column_stack([rows[:, SAVED], last_ends, lost]),
            np.column_stack([sample[:, SAVED], none]),
            np.append(self._numbers[:SEEKS], self.arrived),
        )

    def restore(self, saved: SavedTuples) -> None:
        """Take back what `saved` returned, on a new shedder. Values may have other slots by now."""
        slots = max((int(part[:, 0].max()) + 1 for part in (saved.entries, saved.sample) if len(part)), default=0)
        self._make_room(len(saved.entries) + len(saved.sample) + 2, slots)
        kept = np.append(saved.numbers[:-1], 0)
        self.arrived = int(saved.numbers[-1])
        for name in (HELD, SAMPLE_HELD, FREE_ENTRIES, FREE_STRETCHES, COVERED):
            kept[name] = self._numbers[name]
        self._numbers[:] = kept
        machine.restore_sample(*self._state(), _entry_rows(saved.sample))
        machine.restore_entries(*self._state(), _entry_rows(saved.entries))
        places = self._items[EXPIRIES, : self._sizes[EXPIRIES]]
        by_number = places[np.argsort(self._entries[places, NUMBER])]
        self._values[saved.entries[:, 0], LAST_END] = saved.entries[:, _LAST_END]
        lost = np.flatnonzero((saved.entries[:, (_LEFT, _RIGHT)] != 0).any(axis=1))
        stretches = self._entries[by_number[lost], STRETCH]
        self._stretches[stretches, LOST_LEFT] = saved.entries[lost, _LEFT]
        self._stretches[stretches, LOST_RIGHT] = saved.entries[lost, _RIGHT]

    # --- slots

    def live(self, count: int) -> Int64s:
        """Return how many entries, those of the sample included, each of `count` slots has."""
        found = np.zeros(count, np.int64)
        known = min(count, len(self._values))
        found[:known] = self._values[:known, COUNT]
        return found + np.bincount(self.sample_rows()[:, SLOT], minlength=count)[:count]

    def renumber(self, kept: Int64s) -> None:
        """Give values other slots: kept[k], which has all that are live among others, becomes k."""
        size = max(len(self._values), int(kept.max(initial=-1)) + 1)
        self._make_room(0, size)
        old = self._values.copy()
        if self.shedding.policy.unit == DropUnit.VALUE:
            self._places[0] = -1
        numbers = np.full(size, -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        self._values[:] = (-1, 0, ALWAYS, 0)
        self._values[: len(kept)] = old[kept]
        for heap in (EXPIRIES, SAMPLED):
            places = self._items[heap, : self._sizes[heap]]
            self._entries[places, SLOT] = numbers[self._entries[places, SLOT]]
        if self.shedding.policy.unit == DropUnit.VALUE:
            members = numbers[self._items[0, : self._sizes[0]]]
            self._items[0, : self._sizes[0]] = members
            self._places[0, members] = np.arange(len(members))

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arrays."""
        arrays = (self._entries, self._stretches, self._values, self._items, self._places)
        return sum(array.nbytes for array in arrays)

    @property
    def refuses_from(self) -> int:
        """Return the rank from which on values are refused."""
        return int(self._numbers[THRESHOLD])


def _grown(array: Int64s, size: int) -> Int64s:
    made = np.zeros((size, *array.shape[1:]), np.int64)
    made[: len(array)] = array
    return made


def _entry_rows(saved: Int64s) -> Int64s:
    rows = np.zeros((len(saved), ENTRY_COLUMNS), np.int64)
    rows[:, SAVED] = saved[:, : len(SAVED)]
    return rows
