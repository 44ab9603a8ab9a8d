"""A subscription to the answers that an engine in this process keeps."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError
from penstock.results.content import content_rows, has_no_content, not_reached
from penstock.results.live_state import EmittedRows
from penstock.results.reader import check_snapshot, reader_schema, result_row
from penstock.results.result_source import EndOfResults, ResultPart, ResultRequest
from penstock.runtime.live.answers import KeptAnswers


class InProcessResults:
    """See the contract `ResultSource`. A cursor is `<place>.<position>`. Answers are emitted when their instant is
    final, and are kept: a content is that of the rows up to its instant. Where a place has dropped its answers, and
    begins again, who reads behind these has P0712.

    Args:
        newest: returns what is kept of the answers, and the instant up to which these are complete, None before the
            first.
        changed: is notified after each round.
    """

    def __init__(
        self,
        newest: Callable[[], tuple[KeptAnswers, int | None]],
        changed: threading.Condition,
        place: int,
        query: Query,
        request: ResultRequest,
    ) -> None:
        self._newest = newest
        self._changed = changed
        self._place = place
        self._closed = False
        self._stream = query.root.is_stream
        self.schema = reader_schema(query.output_schema, self._stream)
        answers, tick = newest()
        self._progress, self._after, self._up_to = request.progress, request.after, request.up_to
        #: Up to which position rows are read, and up to which instant progress, where it ends with what there is now.
        self._until = (answers.end, tick) if request.until_now else None
        #: The position behind the rows that have been read. Rows after an instant are found among all.
        self._read = answers.first if request.beginning or request.after is not None else answers.end
        #: The instant up to which the answer was last reported complete.
        self._reached: int | None = None
        #: What comes first.
        self._first: pa.Table | None = None
        if request.snapshot:
            self._begin_with_content(query, request, answers, tick)
        elif request.cursor is not None:
            self._read = self._position(request.cursor, answers)
        elif request.after is not None and answers.dropped is not None and request.after < answers.dropped:
            raise self._gone(f"rows after {query.domain.show(request.after)}", answers)

    def _begin_with_content(
        self, query: Query, request: ResultRequest, answers: KeptAnswers, complete: int | None
    ) -> None:
        """Begin with the content of a relation. complete: up to which tick the answers are. Raises PenstockError
        P0711."""
        if self._stream:
            raise has_no_content(query.name)
        tick = complete if request.after is None else request.after
        if request.after is not None and (complete is None or request.after > complete):
            raise not_reached(query.name, query.domain, request.after, complete)
        check_snapshot(query.domain, request.cursor is not None, tick, request.up_to)
        self._read = answers.first if request.after is not None else answers.end
        if tick is not None:
            rows = EmittedRows(query, answers.parts, tick, answers.dropped).at(tick)
            self._first, self._reached = content_rows(self.schema, tick, rows), tick
            if self._progress:
                self._first = pa.concat_tables([self._first, result_row(self.schema, tick, "p")])

    @property
    def cursor(self) -> str | None:
        return None if self._first is not None else f"{self._place}.{self._read}"

    def _position(self, cursor: str, answers: KeptAnswers) -> int:
        place, _, number = cursor.partition(".")
        if place != str(self._place) or not (number.isascii() and number.isdecimal()) or int(number) > answers.end:
            raise PenstockError("P0712", f"{cursor[:100]!r} is no cursor of this query", hint="read from the beginning")
        if int(number) < answers.first:
            raise self._gone(f"rows behind {cursor}", answers)
        return int(number)

    def _gone(self, what: str, answers: KeptAnswers) -> PenstockError:
        message = f"{what} are gone; the first cursor that is left is {self._place}.{answers.first}"
        hint = "the query had more answers than result_limit allows, and begins again: continue there"
        return PenstockError("P0712", message, hint=hint)

    def next(self, seconds: float) -> ResultPart | None:
        with self._changed:
            part = None if self._closed else self._part()
            if part is None and self._is_over() and not self._closed:
                raise EndOfResults
            if part is None:
                self._changed.wait_for(lambda: self._closed or self._is_due(), seconds)
                part = None if self._closed else self._part()
            return part

    def on_change(self, listener: Callable[[], None]) -> None:
        return None

    def _is_over(self) -> bool:
        """Return whether nothing follows what has been read."""
        tick = self._known()[2]
        return self._until is not None or (self._up_to is not None and tick is not None and tick >= self._up_to)

    def _known(self) -> tuple[KeptAnswers, int, int | None]:
        """Return what is kept, up to which position it is read, and the instant up to which it is complete."""
        answers, tick = self._newest()
        return (answers, answers.end, tick) if self._until is None else (answers, *self._until)

    def _is_due(self) -> bool:
        _, end, tick = self._known()
        return self._read < end or self._is_progress(tick) or self._is_over()

    def _is_progress(self, tick: int | None) -> bool:
        return self._progress and tick is not None and (self._reached is None or self._limit(tick) > self._reached)

    def _limit(self, tick: int) -> int:
        return tick if self._up_to is None else min(tick, self._up_to)

    def _part(self) -> ResultPart | None:
        """Return the content that comes first, the next rows of answers, else a row of progress; None where none is
        due."""
        if self._first is not None:
            rows, self._first = self._first, None
            if rows.num_rows:
                return ResultPart(rows.combine_chunks().to_batches()[0], f"{self._place}.{self._read}")
        answers, end, tick = self._known()
        if self._read < answers.first:
            raise self._gone(f"rows behind {self._place}.{self._read}", answers)
        while self._read < end:
            table = answers.since(self._read, end)
            self._read += table.num_rows
            table = self._chosen(table)
            if self._stream:
                table = table.add_column(1, "op", pa.repeat(pa.scalar("+", pa.string()), table.num_rows))
            if table.num_rows:
                rows = pa.table(table.columns, schema=self.schema)
                return ResultPart(rows.combine_chunks().to_batches()[0], f"{self._place}.{self._read}")
        if tick is None or not self._is_progress(tick):
            return None
        self._reached = self._limit(tick)
        rows = result_row(self.schema, self._reached, "p")
        return ResultPart(rows.to_batches()[0], f"{self._place}.{self._read}")

    def _chosen(self, rows: pa.Table) -> pa.Table:
        """Return the rows of the instants that are read."""
        ticks = rows.column(0).cast(pa.int64())
        if self._after is not None:
            rows = rows.filter(pc.greater(ticks, self._after))
            ticks = rows.column(0).cast(pa.int64())
        return rows if self._up_to is None else rows.filter(pc.less_equal(ticks, self._up_to))

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
