"""The contract of a subscription to the results of one query, and the subscription to a log of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.results.reader import ResultReader


@dataclass(frozen=True)
class ResultRequest:
    """Which results of a query to read.

    Args:
        cursor: where to continue; None: from now on, or with `beginning` from the first rows that are kept.
        snapshot: whether the content comes first, as rows with op `+`.
        progress: whether rows with op `p` report up to which instant the answer is final.
        until_now: whether to end with what there is at the moment.
        after: the instant, in ticks, after which the rows are; with a snapshot that of the content.
        up_to: the instant, in ticks, with which it ends.
    """

    cursor: str | None = None
    beginning: bool = False
    snapshot: bool = False
    progress: bool = False
    until_now: bool = False
    after: int | None = None
    up_to: int | None = None


@dataclass(frozen=True)
class ResultPart:
    """Some rows of a result: the columns `ts`, `op` and those of the query. cursor: continues behind them; empty:
    there are none behind them to continue with."""

    rows: pa.RecordBatch
    cursor: str


class EndOfResults(Exception):
    """A bounded subscription has ended."""


class ResultSource(Protocol):
    """A subscription to the results of one query; not shared between threads."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def cursor(self) -> str | None:
        """Return the cursor of the place where it begins; None where it begins with a snapshot."""

    def next(self, seconds: float) -> ResultPart | None:
        """Return the next rows, None where there are none within so many seconds. Raises EndOfResults at the end
        of a bounded subscription, PenstockError P0712 where rows are gone."""

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None] | None:
        """Have `listener` called, by any thread, whenever `next` may return something or raise; return what ends that.
        None where that is not known: who waits then waits in `next`."""

    def close(self) -> None:
        """End the subscription. May be called at any time, by another thread too."""


class LoggedResults:
    """A subscription to a log of results. See the contract `ResultSource`."""

    def __init__(self, reader: ResultReader, request: ResultRequest) -> None:
        self.schema = reader.schema
        self._is_snapshot = request.snapshot
        self._subscription = reader.read(
            reader.first if request.beginning else request.cursor,
            snapshot=request.snapshot,
            progress=request.progress,
            up_to=request.up_to,
            until_now=request.until_now,
            after=request.after,
        )

    @property
    def cursor(self) -> str | None:
        return None if self._is_snapshot else str(self._subscription.cursor)

    def next(self, seconds: float) -> ResultPart | None:
        found = self._subscription.next(seconds)
        if found is None:
            if self._subscription.ended:
                raise EndOfResults
            return None
        (rows,) = found.rows.combine_chunks().to_batches()
        return ResultPart(rows, "" if found.cursor is None else str(found.cursor))

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._subscription.on_change(listener)

    def close(self) -> None:
        self._subscription.close()
