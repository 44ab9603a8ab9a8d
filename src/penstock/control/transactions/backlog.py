"""What has been accepted and is not applied yet, in order, and what of it is applied next.

A transaction whose queries read their past waits until they have caught up. Others pass it, unless they concern the
same declarations; these wait behind it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.control.command_log import Transaction
from penstock.control.registry import Registry
from penstock.control.transactions.footprint import Footprint
from penstock.control.transactions.merging import BoundChange
from penstock.control.transactions.past_reading import PastReading
from penstock.control.transactions.request import Request
from penstock.events import log_event, logger_of
from penstock.language.statements.script import Script

LOG = logger_of("control")


@dataclass(eq=False)
class AcceptedItem:
    """A transaction, or a request without one that is answered after those before it.

    Args:
        change: what it changes, bound.
        places: of answers that it changes.
        request: who waits for it; None for one from before a restart.
        reading: of the past of its queries, once that is begun.
        is_ready: its queries read no past, or that has been decided.
        is_applied: the engine has changed to a version with it.
    """

    transaction: Transaction | None
    change: BoundChange = field(default_factory=BoundChange)
    footprint: Footprint = field(default_factory=Footprint)
    places: frozenset[int] = frozenset()
    request: Request | None = None
    reading: PastReading | None = None
    is_ready: bool = False
    is_applied: bool = False

    @property
    def waits(self) -> bool:
        """Return whether its queries are reading their past."""
        return self.reading is not None and not self.reading.is_over

    def end_reading(self) -> None:
        """End the reading of a past that is not needed any more."""
        if self.reading is not None:
            self.reading.end()
            self.reading = None

    def answer(self) -> None:
        """Answer the threads that wait for it."""
        if self.request is not None:
            self.request.done()


class Backlog:
    """The accepted transactions. Items are added by one thread and removed by another one.

    Attributes:
        ahead: the declarations after all of them.
        gate: held while a transaction is bound and added, and while some are taken back.
        in_hand: those that are being applied, until they are answered.
        parsed: by number of a command, the statement that it is; of those that change rows, until they have an outcome.
    """

    def __init__(self) -> None:
        self.ahead = Registry()
        self.gate = threading.Lock()
        self.in_hand: Sequence[AcceptedItem] = ()
        self.parsed: dict[int, Script] = {}
        self._items: list[AcceptedItem] = []
        self._changed = threading.Condition()
        #: Something has happened since the last look.
        self._fresh = False
        self._is_closed = False
        self._failure: BaseException | None = None

    @property
    def items(self) -> list[AcceptedItem]:
        """Return what waits, in order."""
        with self._changed:
            return list(self._items)

    def add(self, item: AcceptedItem) -> None:
        """Append an item; it is refused where nothing is applied any more."""
        with self._changed:
            failure = self._failure
            if failure is None:
                self._items.append(item)
                self._wake()
        if failure is not None and item.request is not None:
            item.request.refuse(failure)

    def remove(self, items: Collection[AcceptedItem]) -> None:
        with self._changed:
            self._items = [one for one in self._items if one not in items]

    def wake(self) -> None:
        """Have the items looked at again."""
        with self._changed:
            self._wake()

    def _wake(self) -> None:
        self._fresh = True
        self._changed.notify_all()

    def wait(self) -> tuple[list[AcceptedItem], bool]:
        """Return what waits, once something has happened since the last call, and whether nothing more is added."""
        with self._changed:
            self._changed.wait_for(lambda: self._fresh)
            self._fresh = False
            return list(self._items), self._is_closed

    def close(self) -> None:
        """Add nothing more."""
        with self._changed:
            self._is_closed = True
            self._wake()

    def fail(self, failure: BaseException) -> None:
        """Refuse what waits, and whatever comes later."""
        with self._changed:
            self._is_closed, self._failure = True, failure
            items = [*self._items, *self.in_hand]
            self._wake()
        for item in items:
            if item.request is not None:
                item.request.refuse(failure)
        for item in items:
            if item.reading is not None:
                _end(item.reading)

    def readings(self) -> dict[int, PastReading]:
        """Return, by number of a command, the reading that it waits for."""
        waiting = [(item.transaction, item.reading) for item in self.items if item.waits]
        return {n: reading for one, reading in waiting if one is not None and reading is not None for n in one.numbers}


def dependents(item: AcceptedItem, later: Iterable[AcceptedItem]) -> list[AcceptedItem]:
    """Return the transactions that fail with one that was accepted before them: those that depend on it, or on one of
    these."""
    lost = [item]
    for one in later:
        if one.transaction is not None and any(one.footprint.depends_on(each.footprint) for each in lost):
            lost.append(one)
    return lost[1:]


def waiting_behind(item: AcceptedItem, held: Sequence[AcceptedItem]) -> list[AcceptedItem]:
    """Return those of the waiting transactions that wait for this one alone, or for others that do."""
    chain = [item]
    outside: list[AcceptedItem] = []
    for one in held:
        if one is item:
            continue
        if any(one.footprint.waits_for(each.footprint) for each in outside) or one.waits:
            outside.append(one)
        elif any(one.footprint.waits_for(each.footprint) for each in chain):
            chain.append(one)
        else:
            outside.append(one)
    return chain[1:]


def _end(reading: PastReading) -> None:
    """End the reading of a past whose queries will not begin."""
    try:
        reading.end()
    except BaseException as error:  # it must not keep those after it from an end, whatever it is
        log_event(LOG, logging.WARNING, "past", f"what was read of a past is left behind: {error!r}")
