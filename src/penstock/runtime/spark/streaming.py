"""Spark's streaming query of a run, as its driver watches and stops it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from penstock.errors import PenstockError
from penstock.events import log_event
from penstock.runtime.reporting import LOG
from penstock.runtime.spark.output.failures import translate
from penstock.runtime.spark.startup.session import is_gone

_Answer = TypeVar("_Answer")


class RoundsQuery:
    """The streaming query that reads the rounds of a run.

    Args:
        log: Spark's log of the run, which messages of failures name.
    """

    def __init__(self, query: StreamingQuery, log: Path) -> None:
        self._query = query
        self._log = log
        #: The error of a JVM that is gone, None while it answers.
        self.gone: PenstockError | None = None

    def _ask(self, call: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
        """Return the result of the call to Spark; `otherwise` where its JVM is gone, which has ended the run then."""
        try:
            return call()
        except (Py4JError, OSError) as failure:
            if not is_gone(failure):
                raise
            self.gone = self.gone or translate(failure, self._log)
            return otherwise

    @property
    def active(self) -> bool:
        return self._ask(lambda: bool(self._query.isActive), False)

    @property
    def failure(self) -> PenstockError | None:
        """Return the error that ended the query, None without one."""
        failure = self._ask(self._query.exception, None)
        return self.gone if failure is None else translate(failure, self._log)

    @property
    def last_batch(self) -> int:
        """Return the last batch that Spark reports, -1 before the first."""
        last = self._ask(lambda: self._query.lastProgress, None)
        return -1 if last is None else int(last["batchId"])

    def read_all(self) -> None:
        """Wait until everything available has been read. Raises PenstockError for a query that failed."""
        try:
            self._query.processAllAvailable()
        except (StreamingQueryException, Py4JError, ConnectionError) as failure:
            raise translate(failure, self._log) from None

    def stop(self) -> None:
        """Stop after the work at hand."""
        if not self.active:
            return
        try:
            self._ask(self._query.stop, None)
        except (Py4JError, PySparkException) as failure:
            # Spark gives up on a query that it cannot interrupt in time, or that fails while it is interrupted. The run
            # ends nonetheless, and what is committed stays.
            reason = translate(failure, self._log).message
            log_event(LOG, logging.INFO, "stop_failed", f"Spark did not stop the query in order: {reason}")
