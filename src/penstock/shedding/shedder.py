"""The tuples held under one budget: the arrays of the compiled machine, and how they grow, are saved and restored.

Contract: after every arrival the weight held is at most the budget; what is dropped depends on the arrivals alone, in
their order, never on how they were cut into calls, nor on the numbers that the caller gives to values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Int64s, Records, joined
from penstock.shedding import machine
from penstock.shedding.contract import Shedding
from penstock.shedding.layout import (
    ALWAYS,
    COSTS,
    DROP,
    ENTRY,
    EXPIRIES,
    HEAPS,
    NEVER,
    NUMBERS,
    SAMPLED,
    STRETCH,
    VALUE,
    State,
)
from penstock.shedding.policies import DropUnit

#: The most ArrivingTuples in one call of the compiled loop; bounds the room that is kept for them.
SLICE = 1 << 16

#: The fields of an entry that a checkpoint keeps, a column each; the others follow.
SAVED = ["slot", "begin", "end", "expires", "number", "rank", "tie", "weight"]
#: Columns of a saved entry behind these: the largest end that its value has shown, and, at the first entry of a
#: stretch, the ticks lost at its two ends.
_LAST_END, _LEFT, _RIGHT = range(len(SAVED), len(SAVED) + 3)
SAVED_COLUMNS = len(SAVED) + 3
SAVED_SLOT = SAVED.index("slot")
#: Of a value without entries.
_NO_VALUE = np.array((-1, 0, ALWAYS, 0), VALUE)
#: The lists of free records, and the numbers of them.
_FREE = ("free_entries", "free_stretches")


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
        drops: a `DROP` per tuple dropped.
    """

    entered: Int64s
    drops: Records


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
        none, numbers = np.empty(0, np.int64), np.zeros(1, NUMBERS)
        numbers["budget"], numbers["least_begin"], numbers["threshold"] = budget, ALWAYS, NEVER
        self._state = State(
            items=np.empty((2 * HEAPS, 0), np.int64),
            places=np.empty((HEAPS, 0), np.int64),
            sizes=np.zeros(HEAPS, np.int64),
            entries=np.zeros(0, ENTRY),
            stretches=np.zeros(0, STRETCH),
            values=np.zeros(0, VALUE),
            numbers=numbers,
            parameters=shedding.parameters(),
            free_entries=none,
            free_stretches=none,
        )
        self.arrived = 0

    def _number(self, name: str) -> int:
        return int(self._state.numbers[name][0])

    def _members(self, heap: int) -> Int64s:
        return self._state.items[heap, : self._state.sizes[heap]]

    # --- figures

    @property
    def held(self) -> int:
        """Return the weight held, the sample included."""
        return self._number("held") + self._number("sample_held")

    @property
    def entries(self) -> int:
        """Return the number of tuples held, without the sample."""
        return int(self._state.sizes[EXPIRIES])

    @property
    def covered(self) -> int:
        """Return the ticks of all stretches together."""
        return self._number("covered")

    @property
    def last_end(self) -> int:
        """Return the largest end of what is held."""
        return int(self.rows()["end"].max(initial=ALWAYS))

    @property
    def extraneous(self) -> int:
        """Return how many stretches drops have made by cutting others."""
        return self._number("extraneous")

    @property
    def vanished(self) -> int:
        """Return how many stretches have gone with a drop of their last tuple."""
        return self._number("vanished")

    @property
    def budget(self) -> int:
        return self._number("budget")

    def set_budget(self, budget: int) -> None:
        """Change the budget; the next arrival brings what is held below it."""
        self._state.numbers["budget"] = budget

    def refuse(self, threshold: int, clock: int, stamp: int) -> Records:
        """Refuse the values of at least this rank from now on, and drop what is held of them, the largest rank first.

        The threshold never rises again: a value that is kept again would be emitted as if it began then.

        Args:
            clock: what has left the window by then is not dropped.
            stamp: the timestamp of the drops.

        Returns:
            The drops.
        """
        if threshold >= self.refuses_from:
            return np.zeros(0, DROP)
        self.expire(clock)
        entries = self.entries
        self._make_room(entries if self.shedding.sample else 0, 0)
        state = self._state
        machine.begin_sample(state)
        state.numbers["threshold"] = threshold
        refused = np.flatnonzero((state.values["last"] >= 0) & (state.values["rank"] >= threshold))
        drops, dropped = np.empty(entries, DROP), 0
        for slot in refused[np.argsort(-state.values["rank"][refused], kind="stable")]:
            dropped = machine.drop_value(state, slot, stamp, drops, dropped)
        return drops[:dropped]

    @property
    def sample_share(self) -> float:
        """Return the share of the values that the sample holds now; 0 before shedding begins."""
        return self._number("sample_below") / 2.0**63

    def rows(self) -> Records:
        """Return the entries, in no order."""
        return self._state.entries.take(self._members(EXPIRIES))

    def sample_rows(self) -> Records:
        """Return the entries of the sample."""
        return self._state.entries.take(self._members(SAMPLED))

    # --- arrivals

    def arrive(self, arrivals: ArrivingTuples) -> SheddingOutcome:
        """Take arrivals in order."""
        outcomes = [self._arrive(arrivals.part(k, k + SLICE)) for k in range(0, len(arrivals), SLICE)]
        if not outcomes:
            return SheddingOutcome(np.empty(0, np.int64), np.zeros(0, DROP))
        return SheddingOutcome(
            np.concatenate([one.entered for one in outcomes]), joined([one.drops for one in outcomes])
        )

    def _arrive(self, arrivals: ArrivingTuples) -> SheddingOutcome:
        count = len(arrivals)
        held = self.entries
        self._make_room(2 * count + (held if self.shedding.sample else 0) + 2, int(arrivals.slots.max()) + 1)
        entered = np.empty(count, np.int64)
        drops = np.empty(held + count, DROP)
        dropped = machine.run(self._state, self.arrived, *vars(arrivals).values(), entered, drops)
        self.arrived += count
        return SheddingOutcome(entered, drops[:dropped])

    def expire(self, clock: int) -> None:
        """Remove what has left the window at `clock`."""
        machine.expire(self._state, clock)

    def _make_room(self, entries: int, slots: int) -> None:
        """Make room for that many further entries, and for slots below a number."""
        state = self._state
        if slots > len(state.values):
            values = np.repeat(_NO_VALUE, max(slots, 2 * len(state.values)))
            values[: len(state.values)] = state.values
            state = state._replace(values=values)
        missing = entries - self._number("free_entries")
        had = len(state.entries)
        if missing > 0:
            size = max(had + missing, 2 * had)
            free = {}
            for name in _FREE:
                used = self._number(name)
                free[name] = np.empty(size, np.int64)
                free[name][:used] = getattr(state, name)[:used]
                free[name][used : used + size - had] = np.arange(had, size)
                state.numbers[name] += size - had
            state = state._replace(
                entries=_grown(state.entries, size),
                stretches=_grown(state.stretches, size),
                free_entries=free["free_entries"],
                free_stretches=free["free_stretches"],
            )
        room, known = max(len(state.entries), len(state.values)), state.items.shape[1]
        if room > known:
            items, places = np.zeros((2 * HEAPS, room), np.int64), np.full((HEAPS, room), -1, np.int64)
            items[:, :known], places[:, :known] = state.items, state.places
            state = state._replace(items=items, places=places)
        self._state = state

    # --- checkpoints

    def saved(self) -> SavedTuples:
        """Return all state, as arrays that do not change later."""
        state, places = self._state, self._members(EXPIRIES)
        places = places[np.argsort(state.entries["number"][places])]
        rows = state.entries.take(places)
        stretches = state.stretches.take(rows["stretch"])
        first = stretches["head"] == places
        lost = [state.values["last_end"][rows["slot"]], stretches["lost_left"] * first, stretches["lost_right"] * first]
        sample = self.sample_rows()
        sample = sample.take(np.argsort(sample["number"]))
        return SavedTuples(
            np.column_stack([*(rows[name] for name in SAVED), *lost]),
            np.column_stack([*(sample[name] for name in SAVED), np.zeros((len(sample), 3), np.int64)]),
            np.array([*state.numbers[0].item()[:-1], self.arrived], np.int64),
        )

    def restore(self, saved: SavedTuples) -> None:
        """Take back what `saved` returned, on a new shedder. Values may have other slots by now."""
        slots = max((int(part[:, 0].max()) + 1 for part in (saved.entries, saved.sample) if len(part)), default=0)
        self._make_room(len(saved.entries) + len(saved.sample) + 2, slots)
        state, own = self._state, self._state.numbers.copy()
        state.numbers[0] = (*saved.numbers[:-1].tolist(), 0)
        self.arrived = int(saved.numbers[-1])
        for name in ("held", "sample_held", "free_entries", "free_stretches", "covered"):
            state.numbers[name] = own[name]
        machine.restore_sample(state, _entry_rows(saved.sample))
        machine.restore_entries(state, _entry_rows(saved.entries))
        places = self._members(EXPIRIES)
        by_number = places[np.argsort(state.entries["number"][places])]
        state.values["last_end"][saved.entries[:, SAVED_SLOT]] = saved.entries[:, _LAST_END]
        lost = np.flatnonzero((saved.entries[:, (_LEFT, _RIGHT)] != 0).any(axis=1))
        stretches = state.entries["stretch"][by_number[lost]]
        state.stretches["lost_left"][stretches] = saved.entries[lost, _LEFT]
        state.stretches["lost_right"][stretches] = saved.entries[lost, _RIGHT]

    # --- slots

    def live(self, count: int) -> Int64s:
        """Return how many entries, those of the sample included, each of `count` slots has."""
        found = np.zeros(count, np.int64)
        values = self._state.values
        known = min(count, len(values))
        found[:known] = values["count"][:known]
        return found + np.bincount(self.sample_rows()["slot"], minlength=count)[:count]

    def renumber(self, kept: Int64s) -> None:
        """Give values other slots: kept[k], which has all that are live among others, becomes k."""
        size = max(len(self._state.values), int(kept.max(initial=-1)) + 1)
        self._make_room(0, size)
        state = self._state
        kept_values = state.values.take(kept)
        numbers = np.full(size, -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        state.values[:] = _NO_VALUE
        state.values[: len(kept)] = kept_values
        for heap in (EXPIRIES, SAMPLED):
            places = self._members(heap)
            state.entries["slot"][places] = numbers[state.entries["slot"][places]]
        if self.shedding.policy.unit == DropUnit.VALUE:
            members = numbers[self._members(COSTS)]
            self._members(COSTS)[:] = members
            state.places[COSTS] = -1
            state.places[COSTS, members] = np.arange(len(members))

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arrays."""
        state = self._state
        arrays = (state.entries, state.stretches, state.values, state.items, state.places)
        return sum(array.nbytes for array in arrays)

    @property
    def refuses_from(self) -> int:
        """Return the rank from which on values are refused."""
        return self._number("threshold")


def _grown(records: Records, size: int) -> Records:
    made = np.zeros(size, records.dtype)
    made.view(np.uint8)[: records.nbytes] = records.view(np.uint8)
    return made


def _entry_rows(saved: Int64s) -> Records:
    rows = np.zeros(len(saved), ENTRY)
    for column, name in enumerate(SAVED):
        rows[name] = saved[:, column]
    return rows
