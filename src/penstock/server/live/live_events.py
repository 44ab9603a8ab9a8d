"""Events of a live system for callers who read them one after the other."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping

from penstock.server.service import ServerEvent

#: Events that wait for a reader at most; later ones are dropped.
_MOST_EVENTS = 10_000


class LiveEvents:
    """The events that one caller has not read yet."""

    def __init__(self, ended: Callable[[LiveEvents], None]) -> None:
        self._waiting: queue.Queue[ServerEvent] = queue.Queue(_MOST_EVENTS)
        self._ended = ended

    def put(self, event: ServerEvent) -> None:
        if not self._waiting.full():
            self._waiting.put(event)

    def next(self, seconds: float) -> ServerEvent | None:
        try:
            return self._waiting.get(timeout=seconds) if seconds else self._waiting.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        self._ended(self)


class EventListeners:
    """All callers that read events at present."""

    def __init__(self) -> None:
        self._listeners: tuple[LiveEvents, ...] = ()

    def begin(self) -> LiveEvents:
        """Return the events of a new caller, from now on."""
        events = LiveEvents(self._end)
        self._listeners = (*self._listeners, events)
        return events

    def _end(self, events: LiveEvents) -> None:
        self._listeners = tuple(one for one in self._listeners if one is not events)

    def announce(self, kind: str, content: Mapping[str, object]) -> None:
        """Give an event to all callers."""
        for events in self._listeners:
            events.put(ServerEvent(kind, content))
