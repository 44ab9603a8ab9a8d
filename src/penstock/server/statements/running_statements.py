"""The statements that run at present: one-time queries and subscriptions, each with an id by which it can be cancelled.

Commands are not among them: an accepted one is executed, whether or not a client waits for it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.results.cancellation import Cancellation, cancelled
from penstock.results.result_source import EndOfResults, ResultPart, ResultSource
from penstock.server.roles import AccessRole, Caller

SUBSCRIBE = "SUBSCRIBE"


@dataclass(frozen=True)
class RunningStatement:
    """A statement that runs.

    Args:
        id: a number, unique in this process.
        kind: such as `SELECT`.
        began: in seconds since 1970.
        cancellation: ends it.
    """

    id: str
    kind: str
    text: str
    caller: Caller
    began: float
    cancellation: Cancellation


class RunningStatements:
    """All of them. Threads may share it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._running: dict[str, RunningStatement] = {}

    def begin(self, kind: str, text: str, caller: Caller, cancellation: Cancellation) -> RunningStatement:
        """Note a statement until `end`."""
        one = RunningStatement(str(next(self._numbers)), kind, text, caller, time.time(), cancellation)
        with self._lock:
            self._running[one.id] = one
        return one

    def end(self, one: RunningStatement) -> None:
        with self._lock:
            self._running.pop(one.id, None)

    @contextmanager
    def running(self, kind: str, text: str, caller: Caller, cancellation: Cancellation) -> Iterator[RunningStatement]:
        """Note a statement while the context lasts."""
        one = self.begin(kind, text, caller, cancellation)
        try:
            yield one
        finally:
            self.end(one)

    def all(self) -> list[RunningStatement]:
        """Return the statements in the order in which they began."""
        with self._lock:
            return list(self._running.values())

    def cancel(self, id_: str, caller: Caller) -> RunningStatement:
        """End a statement; return it. Raises as `known`."""
        one = self.known(id_, caller)
        one.cancellation.set()
        return one

    def known(self, id_: str, caller: Caller) -> RunningStatement:
        """Return a statement that a caller may end.

        Raises:
            PenstockError: P0201 where none with this id runs, P0802 for one of another token without the role control.
        """
        with self._lock:
            one = self._running.get(id_)
        if one is None:
            hint = "SHOW STATEMENTS lists those that run"
            raise PenstockError("P0201", f"no statement {id_[:100]!r} runs", hint=hint)
        if one.caller.name != caller.name:
            caller.need(AccessRole.CONTROL, "to cancel a statement of another token")
        return one


class RunningSubscription:
    """A subscription among the statements that run. See the contract `ResultSource`."""

    def __init__(self, statements: RunningStatements, text: str, caller: Caller, source: ResultSource) -> None:
        self._statements = statements
        self._source = source
        self._cancellation = Cancellation()
        self._statement = statements.begin(SUBSCRIBE, text, caller, self._cancellation)

    @property
    def statement(self) -> str:
        return self._statement.id

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    @property
    def cursor(self) -> str | None:
        return self._source.cursor

    def next(self, seconds: float) -> ResultPart | None:
        if self._cancellation.is_set():
            raise cancelled()
        try:
            with self._cancellation.ending(self._source.close):
                part = self._source.next(seconds)
        except EndOfResults:
            if not self._cancellation.is_set():
                raise
            part = None
        if part is None and self._cancellation.is_set():
            raise cancelled()
        return part

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None] | None:
        end = self._source.on_change(listener)
        if end is None:
            return None
        listening = ExitStack()
        listening.callback(end)
        listening.enter_context(self._cancellation.ending(listener))
        return listening.close

    def cancel(self) -> None:
        """End it from outside: its reader receives an error, not the end of its rows."""
        self._cancellation.set()
        self.close()

    def close(self) -> None:
        self._statements.end(self._statement)
        self._source.close()
