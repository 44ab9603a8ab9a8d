"""What clients may do that have not logged in: fail ten times a minute and address, and wait for a while.

Every host can open connections, and those without a login must not keep others out. One is closed by its door after
`BEFORE_LOGIN` seconds. Beyond a number of them by address, and of all, a new one takes the place of the oldest that has
had a second, of the address that has most.

A token that has been accepted once is no attempt any more, so a client with a wrong token does not lock out others
behind the same address. The table of addresses is bounded: what is oldest is forgotten.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

_MOST, _SECONDS = 10, 60.0
_ADDRESSES = 10_000
#: Hosts own a whole network of this length in IPv6.
_NETWORK = 64
#: Seconds that a client has to log in, or for the head of its first request.
BEFORE_LOGIN = 10.0
#: Connections of an address that may wait for their login.
OF_ADDRESS = 50
#: Seconds in which a connection is not displaced: an honest client logs in at once.
_AT_LEAST = 1.0


class FailedLogins:
    """The failed attempts of the last minute, by address. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return the seconds until another attempt is allowed; 0 where one is allowed now."""
        with self._guard:
            times = self._recent(origin_of(address))
            if len(times) < _MOST:
                return 0.0
            return max(0.001, times[0] + _SECONDS - self._clock())

    def failed(self, address: str) -> None:
        """Count a failed attempt."""
        with self._guard:
            origin = origin_of(address)
            times = self._recent(origin)
            times.append(self._clock())
            self._failures[origin] = times
            self._failures.move_to_end(origin)
            while len(self._failures) > _ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, origin: str) -> deque[float]:
        times = self._failures.get(origin, deque(maxlen=_MOST))
        while times and times[0] + _SECONDS <= self._clock():
            times.popleft()
        return times


def origin_of(address: str) -> str:
    """Return what an address is counted as: of IPv6 its network."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _NETWORK), strict=False))
    return str(parsed)


@dataclass(frozen=True)
class _Client:
    origin: str
    since: float
    waits: Callable[[], bool]
    close: Callable[[], None]


class WaitingClients:
    """Those of one door; used by the thread of its loop alone. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: In the order in which they came.
        self._clients: list[_Client] = []

    def add(self, address: str, waits: Callable[[], bool], close: Callable[[], None], is_full: bool) -> None:
        """Note a new connection, and close another one where there are too many.

        Args:
            waits: returns whether its client still has to log in.
            close: closes it.
            is_full: whether the door has as many connections as it may have.
        """
        self._clients = [one for one in self._clients if one.waits()]
        counts = Counter(one.origin for one in self._clients)
        origin, now = origin_of(address), self._clock()
        crowded = origin if counts[origin] >= OF_ADDRESS else None
        if is_full and counts:
            crowded = counts.most_common(1)[0][0]
        oldest = next((one for one in self._clients if one.origin == crowded), None)
        if oldest is not None and now - oldest.since >= _AT_LEAST:
            self._clients.remove(oldest)
            oldest.close()
        self._clients.append(_Client(origin, now, waits, close))
