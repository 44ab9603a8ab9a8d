"""Limit of failed logins: ten a minute and address.

A token that has been accepted once is no attempt any more, so a client with a wrong token does not lock out others
behind the same address. The table of addresses is bounded: what is oldest is forgotten.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

_MOST, _SECONDS = 10, 60.0
_ADDRESSES = 10_000
#: Hosts own a whole network of this length in IPv6.
_NETWORK = 64


class FailedLogins:
    """The failed attempts of the last minute, by address. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return the seconds until another attempt is allowed; 0 where one is allowed now."""
        with self._guard:
            times = self._recent(_origin(address))
            if len(times) < _MOST:
                return 0.0
            return max(0.001, times[0] + _SECONDS - self._clock())

    def failed(self, address: str) -> None:
        """Count a failed attempt."""
        with self._guard:
            origin = _origin(address)
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


def _origin(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _NETWORK), strict=False))
    return str(parsed)
