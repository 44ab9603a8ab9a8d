"""How many rows promises have closed, by promise, since the start of the process. A row counts for the first promise
that closes it, so the counts depend neither on rounds nor on shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from penstock.figures import OPEN_ROWS, ROWS_CLOSED, VALUES_CLOSED, VALUES_OPEN
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Bools, Int64s
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.closing_index import ClusteredIndex
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END

_NONE = np.empty(0, np.int64)
#: In place of the number of a promise: none has closed the row; one has in an earlier round.
OPEN, COUNTED = -1, -2


class ClosedCounts:
    """The counts of the rows of a table.

    Args:
        table: gets the counts (`Synopsis.closed`).
        texts: of the promises, in the order of their numbers.
    """

    def __init__(self, table: Synopsis, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)
        # Several conditions on one table count together.
        self._closed = table.closed if isinstance(table.closed, dict) else {}
        self._closed |= {text: 0 for text in self._texts if text not in self._closed}
        table.closed = self._closed

    def add(self, by: Int64s, rows: Int64s | None = None) -> None:
        """Count rows.

        Args:
            by: the number of the promise that has closed each; below 0 for none.
            rows: how many rows each stands for; one where it is None.
        """
        there = by >= 0
        weights = None if rows is None else rows[there]
        numbers = np.bincount(by[there], weights, len(self._texts))
        for text, number in zip(self._texts, numbers.tolist(), strict=True):
            self._closed[text] += int(number)


def first_to_close(instants: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """Return the number of the promise that closes each row first, of several at one instant the first one, and when;
    OPEN and END where none does.

    Args:
        instants: by promise when it closes each row; END where that is not known.
    """
    together = np.stack(instants)
    by, at = together.argmin(axis=0), together.min(axis=0)
    return np.where(at < END, by, OPEN), at


def sooner(by: Int64s, at: Int64s, number: int, instants: Int64s) -> tuple[Int64s, Int64s]:
    """Return the same once the promise `number` is known, too. by, at: of those before it."""
    return np.where(instants < at, number, by), np.minimum(at, instants)


class ClosingsOfSide:
    """Which promise closes rows of a side of a join first, in one round. A closing counts if the row is still there at
    its instant: it may have left with its first partner, or with its window. In a round: `close`, `enter` for rows that
    are stored and enter, `arrive`, `meet`, `count`.

    Args:
        leaving: texts of the promises that close rows by themselves, in the order of their numbers.
        unique: the text of those by which a row leaves after its first partner; empty for none.
    """

    def __init__(self, table: KeyedTable, leaving: Sequence[str], unique: str) -> None:
        self._counts = ClosedCounts(table, (*leaving, *([unique] if unique else ())))
        self._unique = len(leaving)
        self._begin()

    def _begin(self) -> None:
        #: Of rows that enter in this round: the number of the promise, and the instant.
        self._fresh, self._fresh_at = _NONE, _NONE
        #: The same of stored rows, by their slots in ascending order.
        self._slots, self._by, self._at = _NONE, _NONE, _NONE
        self._met: list[tuple[Bools, Int64s, Bools]] = []

    def close(self, closed: Sequence[tuple[Int64s, Int64s]], states: Int64s, until: Int64s) -> None:
        """Note the closings of stored rows.

        Args:
            closed: by promise the slots of rows, and when each was closed.
            states: by slot; 0 for a row that has ended.
            until: by slot, up to when the row answers as far as it was known before.
        """
        slots = np.concatenate([_NONE, *(slots for slots, _ in closed)])
        at = np.concatenate([_NONE, *(instants for _, instants in closed)])
        by = np.repeat(np.arange(len(closed)), [len(slots) for slots, _ in closed])
        there = np.flatnonzero((states[slots] != 0) & (until[slots] == END))
        order = there[np.lexsort((by[there], at[there], slots[there]))]
        firsts = order[np.append(True, slots[order][1:] != slots[order][:-1])[: len(order)]]
        self._slots, self._by, self._at = slots[firsts], by[firsts], at[firsts]

    def enter(self, slots: Int64s, was_closed: Bools) -> None:
        """Note that stored rows enter, which are stored no more."""
        places, found = self._places(slots)
        self._fresh = np.where(was_closed, COUNTED, OPEN)
        self._fresh_at = np.full(len(slots), END)
        self._fresh[found], self._fresh_at[found] = self._by[places[found]], self._at[places[found]]
        self._by[places[found]] = OPEN

    def arrive(self, by: Int64s, at: Int64s, enters: Bools, stop: Int64s) -> None:
        """Note the closings of rows that arrive. stop: the ends of their windows."""
        self._fresh, self._fresh_at = np.append(self._fresh, by[enters]), np.append(self._fresh_at, at[enters])
        waits = ~enters & (at < stop)
        self._counts.add(by[waits])

    def meet(self, stored: Bools, rows: Int64s, was_open: Bools) -> None:
        """Note rows that leave with their first partner.

        Args:
            stored: whether each is stored.
            rows: its slot, else its number among those that enter in this round.
            was_open: whether nothing was known to close it.
        """
        self._met.append((stored, rows, was_open))

    def count(self, fresh: tuple[Int64s, Int64s], stored: tuple[Int64s, Int64s]) -> None:
        """Count the rows that were closed in the round.

        Args:
            fresh: of rows that enter in this round, up to when they answer, and the ends of their windows.
            stored: the same by slot.
        """
        until, stop = fresh
        own = (self._fresh_at <= until) & (self._fresh_at < stop)
        by = np.where((self._fresh == COUNTED) | own, self._fresh, OPEN)
        until, stop = stored[0][self._slots], stored[1][self._slots]
        of_slots = np.where((self._at <= until) & (self._at < stop), self._by, OPEN)
        for is_stored, rows, was_open in self._met:
            numbers = rows[~is_stored]
            by[numbers] = np.where(by[numbers] == OPEN, self._unique, by[numbers])
            places, found = self._places(rows[is_stored])
            hit = places[found]
            of_slots[hit] = np.where(of_slots[hit] == OPEN, self._unique, of_slots[hit])
            self._counts.add(np.full(np.count_nonzero(~found & was_open[is_stored]), self._unique))
        self._counts.add(by)
        self._counts.add(of_slots)
        self._begin()

    def _places(self, slots: Int64s) -> tuple[Int64s, Bools]:
        """Return the places of slots among those that were closed in this round, and whether each is there."""
        places = np.searchsorted(self._slots, slots)
        found = places < len(self._slots)
        found[found] = self._slots[places[found]] == slots[found]
        return places, found


def promise_figures(synopses: Iterable[Synopsis]) -> FigureValues:
    """Return what promises have closed of the state of an operator, and what is open."""
    ended = [one for one in synopses if one.closed]
    indexes = [one for one in ended if isinstance(one, ClusteredIndex)]
    tables = [one for one in ended if not isinstance(one, ClusteredIndex)]
    return {
        ROWS_CLOSED: sum(sum(one.closed.values()) for one in tables),
        OPEN_ROWS: sum(one.rows for one in tables),
        VALUES_CLOSED: sum(sum(one.closed.values()) for one in indexes),
        VALUES_OPEN: sum(one.rows for one in indexes),
    }
