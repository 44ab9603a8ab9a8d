"""Register queries for as long as a client subscribes to them: SUBSCRIBE TO (query).

Each is a query of the catalog with a random name and a comment that marks it, so that the next start drops those that a
crash has left.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.control.live.control import Control
from penstock.control.outcomes import SYSTEM, CommandState, Principal
from penstock.control.stored_catalog import TEMPORARY_COMMENT, TEMPORARY_PREFIX
from penstock.errors import PenstockError, ScriptErrors
from penstock.events import log_event, logger_of
from penstock.language.queries import NOWHERE, Mark, Name, WholeQuery
from penstock.language.statements import CreateQuery, DropStatement, WrittenOption
from penstock.language.statements.script import Script
from penstock.results.result_source import ResultPart, ResultSource

LOG = logger_of("server")


class TemporaryQueries:
    """The queries of subscriptions at one control."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._ending: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def begin(
        self, script: Script, query: WholeQuery, settings: Mapping[str, str], who: Principal, timeout: float | None
    ) -> str:
        """Register a query of a script; return its name.

        Raises:
            ScriptErrors, PenstockError: it cannot be registered; P0725 where that takes longer than `timeout` seconds.
        """
        name = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        comment = WrittenOption(Name("comment"), TEMPORARY_COMMENT)
        command = CreateQuery(Name(name, quoted=True), query, attributes=(comment,))
        (outcome,) = self._control.submit(script.with_only(command), settings, who, timeout=timeout)
        found = outcome.outcome
        if found is None or found.state is not CommandState.RUNNING:
            self.end(name)
            error = None if found is None else found.error
            message = f"the query has not begun within {timeout or 0:g} seconds"
            raise error or PenstockError("P0725", message, hint="try again later, or raise statement_timeout")
        return name

    def end(self, name: str) -> None:
        """Drop a query, in a thread of its own: a command may take as long as a batch."""
        thread = threading.Thread(target=self._drop, args=[name], name="penstock-subscription-end", daemon=True)
        with self._lock:
            self._ending.add(thread)
            thread.start()

    def wait(self) -> None:
        """Wait until the ends of all subscriptions that have been closed are accepted: what comes behind that, such as
        DROP STREAM, does not meet their queries."""
        with self._lock:
            ending = list(self._ending)
        for thread in ending:
            thread.join()

    def drop_left(self) -> None:
        """Drop the queries of subscriptions that ended with an earlier process."""
        for one in self._control.stored.values():
            if one.is_temporary:
                self._drop(one.name)

    def _drop(self, name: str) -> None:
        drop = DropStatement("QUERY", Name(name, quoted=True), if_exists=Mark(NOWHERE))
        try:
            self._control.submit(Script.made(drop), who=SYSTEM, wait=False)
        except (PenstockError, ScriptErrors) as error:
            # A control that has ended drops it at its next start.
            log_event(LOG, logging.INFO, "subscription", f"the query of a subscription stays for now: {error.message}")
        finally:
            with self._lock:
                self._ending.discard(threading.current_thread())


class TemporaryResults:
    """The results of a query that ends with them. See the contract `ResultSource`."""

    def __init__(self, queries: TemporaryQueries, name: str, source: ResultSource) -> None:
        self._queries, self._name, self._source = queries, name, source
        self._lock = threading.Lock()
        self._ended = False

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    @property
    def cursor(self) -> str | None:
        # It cannot be continued: the query is gone then.
        return None

    def next(self, seconds: float) -> ResultPart | None:
        part = self._source.next(seconds)
        return part if part is None else ResultPart(part.rows, "")

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None] | None:
        return self._source.on_change(listener)

    def close(self) -> None:
        self._source.close()
        with self._lock:
            ended, self._ended = self._ended, True
        if not ended:
            self._queries.end(self._name)
