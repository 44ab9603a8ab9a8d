"""Keep rows that pass over an edge of the plan for the taps on it.

Tasks keep the first rows of a round at the edges that are tapped (`flow_counts.py`) and send them with their reports.
Without a tap nothing is kept and nothing is sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.physical.elements import Elements
from penstock.physical.execution.flow_counts import TappedPort, first_rows

#: Bytes of rows that wait in a tap; where they do not fit, no more are kept.
_MOST_WAITING = 1024 * 1024


class Tap:
    """The next rows of an edge. rows: how many it takes before it ends."""

    def __init__(self, taps: Taps, edge: TappedPort, rows: int) -> None:
        self._taps = taps
        self.edge = edge
        #: Rows that it still takes.
        self._left = rows
        self._waiting: list[Elements] = []
        self._changed = threading.Condition()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._closed = False

    def offer(self, elements: Elements) -> None:
        """Accept rows that have passed; those beyond the number it takes, or more than fit, are left out."""
        with self._changed:
            space = _MOST_WAITING - sum(part.nbytes for part in self._waiting)
            kept = None if self._closed else first_rows(elements, self._left, space)
            if kept is None:
                return
            self._left -= len(kept)
            self._waiting.append(kept)
            self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def next(self, seconds: float) -> list[Elements]:
        """Return the rows that have passed since, which are waited for for at most so many seconds."""
        end = time.monotonic() + seconds
        with self._changed:
            while not (self._waiting or self.ended) and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            found, self._waiting = self._waiting, []
            return found

    @property
    def ended(self) -> bool:
        """Return whether no more rows come."""
        return self._closed or self._left <= 0

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called when there are rows, by any thread; return what ends that."""
        self._listeners = (*self._listeners, listener)

        def end() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def close(self) -> None:
        """End; may be called more than once."""
        with self._changed:
            self._closed, self._waiting = True, []
            self._changed.notify_all()
        self._taps.end(self)


class Taps:
    """The edges that are tapped, by the keys of the steps that receive the rows. Used by any thread.

    publish: is called with all edges whenever they change.
    """

    def __init__(self, publish: Callable[[frozenset[TappedPort]], None] = lambda edges: None) -> None:
        self.publish = publish
        self._lock = threading.Lock()
        self._open: tuple[Tap, ...] = ()

    @property
    def edges(self) -> frozenset[TappedPort]:
        """Return the edges that are tapped."""
        return frozenset(tap.edge for tap in self._open)

    def begin(self, edge: TappedPort, rows: int) -> Tap:
        """Tap an edge: the next rows that pass over it."""
        tap = Tap(self, edge, rows)
        with self._lock:
            self._set((*self._open, tap))
        return tap

    def end(self, tap: Tap) -> None:
        """Forget a tap."""
        with self._lock:
            self._set(tuple(one for one in self._open if one is not tap))

    def offer(self, edge: TappedPort, elements: Elements) -> None:
        """Pass rows of an edge to its taps."""
        for tap in self._open:
            if tap.edge == edge:
                tap.offer(elements)

    def _set(self, taps: tuple[Tap, ...]) -> None:
        before, self._open = self.edges, taps
        if self.edges != before:
            self.publish(self.edges)
