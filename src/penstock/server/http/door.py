"""What all routes share: the service, the limits, and threads for calls that block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request

from penstock.errors import Busy
from penstock.language.statements.script import Script
from penstock.server.addresses import HostNames
from penstock.server.attempts import FailedLogins
from penstock.server.limits import DoorLimits, ScriptRate
from penstock.server.roles import AccessRole, Caller
from penstock.server.service import Service
from penstock.server.statements.parsing import SMALL, ScriptParser
from penstock.server.tokens import TokenFile

T = TypeVar("T")

#: Threads for calls that only look something up, and for those that read what subscriptions have now. What a thread has
#: allocated it keeps for its next calls, so there are few, however many subscriptions there are.
_QUICK, _READING = 16, 8


class Interrupted(Exception):
    """The server ends: the connection is broken off, so that no client takes this for the end of the results."""


@dataclass
class HttpDoor:
    """The state of the door. tokens: None where none are required; closing: set when the server ends."""

    service: Service
    tokens: TokenFile | None
    hosts: HostNames
    limits: DoorLimits
    failures: FailedLogins = field(default_factory=FailedLogins)
    closing: threading.Event = field(default_factory=threading.Event)
    requests: int = 0
    streams: int = 0

    def __post_init__(self) -> None:
        self.scripts = ScriptRate(self.limits.scripts)
        self.parser = ScriptParser(self.limits.seconds)
        self._quick = anyio.CapacityLimiter(_QUICK)
        self._slow = anyio.CapacityLimiter(self.limits.connections)
        self._posting = anyio.CapacityLimiter(self.limits.connections)
        self._reading = anyio.CapacityLimiter(_READING)
        self._streaming = anyio.CapacityLimiter(self.limits.subscriptions)

    @contextmanager
    def request(self, streams: bool) -> Iterator[CountedRequest]:
        """Count a request while it is processed. streams: it may be open for long and is counted by `stream` instead.
        Raises Busy beyond the limit."""
        counted = CountedRequest(self)
        if not streams:
            if self.requests >= self.limits.connections:
                raise _busy(f"the server processes {self.requests:,} requests already, its max_connections")
            counted.begin()
        try:
            yield counted
        finally:
            counted.end()

    def open_stream(self) -> None:
        """Count one more subscription until `close_stream`. Raises Busy beyond the limit."""
        if self.streams >= self.limits.subscriptions:
            raise _busy(f"the server serves {self.streams:,} subscriptions already, its max_subscriptions")
        self.streams += 1

    def close_stream(self) -> None:
        self.streams -= 1

    async def parsed(self, text: str) -> Script:
        """Return a script, parsed in a thread. Raises as `ScriptParser`."""
        call = self.quick if len(text) <= SMALL else self.slow
        return await call(lambda: self.parser(text))

    async def quick(self, call: Callable[[], T]) -> T:
        """Return what a short call returns, from a thread."""
        return await anyio.to_thread.run_sync(call, limiter=self._quick)

    async def slow(self, call: Callable[[], T]) -> T:
        """Return what a call returns that may take long; the wait for it can be cancelled."""
        return await anyio.to_thread.run_sync(call, limiter=self._slow, abandon_on_cancel=True)

    async def posting(self, call: Callable[[], T]) -> T:
        """Return what a call that adds rows returns; it is not abandoned, so rows are added or refused, never half."""
        return await anyio.to_thread.run_sync(call, limiter=self._posting)

    async def reading(self, call: Callable[[], T]) -> T:
        """Return what a call of a subscription returns that does not wait for anything."""
        return await anyio.to_thread.run_sync(call, limiter=self._reading, abandon_on_cancel=True)

    async def streaming(self, call: Callable[[], T]) -> T:
        """Return what a call of a subscription returns."""
        return await anyio.to_thread.run_sync(call, limiter=self._streaming, abandon_on_cancel=True)


class CountedRequest:
    """A request among those that a door processes, until it ends or turns out to be a subscription."""

    def __init__(self, door: HttpDoor) -> None:
        self._door = door
        self._is_counted = False

    def begin(self) -> None:
        self._door.requests += 1
        self._is_counted = True

    def end(self) -> None:
        if self._is_counted:
            self._door.requests -= 1
            self._is_counted = False


def _busy(message: str) -> Busy:
    return Busy(message, 1.0, hint="try again later, or raise the limit where the server is started")


def door_of(request: Request) -> HttpDoor:
    """Return the door that a request came through."""
    door: HttpDoor = request.app.state.door
    return door


def caller_of(request: Request, role: AccessRole, action: str) -> Caller:
    """Return the caller of a request, who needs a role. Raises PenstockError P0802."""
    caller: Caller = request.scope["state"]["caller"]
    caller.need(role, action)
    return caller


def at_end(request: Request, action: Callable[[], None]) -> None:
    """Do something when the request ends, however it does."""
    actions: list[Callable[[], None]] = request.scope["state"].setdefault("at_end", [])
    actions.append(action)
