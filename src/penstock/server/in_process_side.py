"""The engine's side of a server without Spark: queries run in this process, over sources that end and rows that are
posted. For trying things out, and for tests of the doors.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.properties.need import missing_rows
from penstock.control.engine import EngineVersion, NextVersion, Preparation
from penstock.control.in_process import InProcessEngine
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.language.commands import SelectOnce
from penstock.physical.execution.flow_counts import TappedPort
from penstock.results.cancellation import Cancellation
from penstock.results.live_state import EmittedRows, LiveState
from penstock.results.reader import result_row
from penstock.results.run_input import newest_of
from penstock.results.select import LiveReader
from penstock.results.select_workers import SelectWorkers
from penstock.results.source_rows import SourceRows
from penstock.runtime.local.explain import explain
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.watching.taps import Tap
from penstock.server.service import EndOfResults, ResultPart, ResultRequest
from penstock.server.statements.selecting import SelectedRows, SelectScope, check_readable, whole_inputs
from penstock.storage.documents import Document

LOG = logger_of("server")


class WakingEngine(InProcessEngine):
    """Runs a round whenever there may be something new."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.woken = threading.Event()

    def wake(self) -> None:
        self.woken.set()

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        changed = super().change(version, prepared)
        self.woken.set()
        return changed


class InProcessSide:
    """See the contract `EngineSide`. folder: of the checkpoint; workers: compute one-time queries, end with this."""

    def __init__(self, engine: WakingEngine, folder: Path, workers: SelectWorkers | None = None) -> None:
        self._engine = engine
        self._posted = folder / "control" / "kept"
        self._workers = workers or SelectWorkers()
        self._changed = threading.Condition()
        self._batch = 0
        self._at: float | None = None
        self._failure: str | None = None
        self._listeners: list[Callable[[Mapping[str, object]], None]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-rounds", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._engine.woken.wait()
            self._engine.woken.clear()
            if self._ending.is_set():
                return
            try:
                self._engine.round()
                self._failure = None
            except Exception as error:
                # Nothing has been read by it, and it is tried again with the next rows.
                self._tell_failure(error)
            with self._changed:
                self._batch += 1
                self._at = time.monotonic()
                self._changed.notify_all()
            for listener in self._listeners:
                listener({"number": self._batch, "version": self._engine.version().number})

    def _tell_failure(self, error: Exception) -> None:
        """Log why a round has failed, unless the one before failed so too."""
        what = (
            f"{error.code}: {error.message}" if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        )
        if what != self._failure:
            hint = "it is an error of no single operator: drop or pause the query that was begun last"
            log_event(
                LOG, logging.ERROR, "failed", f"no rows are read, as a round has failed with {what}", error, hint=hint
            )
        self._failure = what

    # -- reading -----------------------------------------------------------------------------------------------

    def results(self, place: int, query: Query, request: ResultRequest) -> InProcessResults:
        if request.snapshot or request.after is not None or request.up_to is not None:
            what = "snapshots" if request.snapshot else "instants of answers"
            raise PenstockError("P0711", f"a server without Spark keeps no {what}", hint="read from the beginning")
        return InProcessResults(self._engine, self._changed, place, query, request)

    def result_schema(self, query: Query) -> pa.Schema:
        return result_schema(query)

    def select(
        self, command: SelectOnce, scope: SelectScope, statement: str, cancellation: Cancellation
    ) -> SelectedRows:
        inputs = whole_inputs(command, scope, self._posted)
        check_readable(command, inputs)
        state = self._state(command, scope, inputs)
        compute = None if scope.is_light(command.query) else self._workers
        return SelectedRows.of(LiveReader(lambda: state, compute).answer(command.query, cancellation))

    def has_read(self, source: int, post: int) -> bool:
        return self._engine.has_read(source, post)

    def _state(self, command: SelectOnce, scope: SelectScope, inputs: Mapping[str, SourceRows]) -> LiveState:
        """Return what a query reads: whole inputs, and the answers of queries, all of one round."""
        keys = [key for name in sources_of(command.query) if (key := name.lower()) in scope.queries]
        answers, beats, newest = self._engine.answers_of([scope.queries[key][0] for key in keys])
        found = {
            key: EmittedRows(query, answers[place], beats[place])
            for key, (place, query) in ((key, scope.queries[key]) for key in keys)
            if place in beats
        }
        return LiveState(
            0, None, {key: one for key, one in found.items() if not one.query.root.is_stream},
            {key: one for key, one in found.items() if one.query.root.is_stream}, whole=inputs,
            newest=newest_of({key: ("", one.query) for key, one in found.items()}, newest),
        )  # fmt: skip

    def explain(self, query: Query, form: str) -> str:
        return explain(query, form)

    def explain_start(self, query: Query) -> str:
        return "\n".join(
            f"{start.words}: {f'yes{self._awaits(query, start)}' if obstacle is None else f'no; {obstacle}'}"
            for start, obstacle in self._obstacles(query).items()
        )

    def starts(self, query: Query) -> Sequence[Document]:
        return [
            {"start": start.words, "possible": obstacle is None, "obstacles": [] if obstacle is None else [obstacle],
             "reads": [], "warm_after": None, "since": None, "awaits": self._missing(query, start)}
            for start, obstacle in self._obstacles(query).items()
        ]  # fmt: skip

    def _awaits(self, query: Query, start: Start) -> str:
        missing = self._missing(query, start)
        return "" if missing is None else f"; answers with {missing}"

    def _missing(self, query: Query, start: Start) -> str | None:
        """Return for which rows a query waits that begins so, None for none."""
        found = self._engine.awaited(query) if start.wait else None
        return None if found is None or not found.rows else missing_rows(found.rows)

    def _obstacles(self, query: Query) -> dict[Start, str | None]:
        """Return, by START, why `query` cannot begin so."""
        ways = [Start(mode) for mode in (StartMode.NOW, StartMode.WARM, StartMode.BEGINNING)]
        found = {start: self._engine.obstacle(query, start) for start in ways}
        if found[ways[1]] is not None:
            wait = Start(StartMode.WARM, wait=True)
            found[wait] = self._engine.obstacle(query, wait)
        return found

    def batch(self) -> tuple[int, float | None]:
        # A round runs only when there is something new, so nothing is stalled.
        return self._batch, None

    def problem(self) -> str | None:
        return None if self._failure is None else f"the last round failed with {self._failure}"

    def ended_by(self) -> PenstockError | None:
        # A round that has failed is tried again with the next rows.
        return None

    def tap(self, edge: TappedPort, rows: int) -> Tap:
        return self._engine.tap(edge, rows)

    def listen(self, on_batch: Callable[[Mapping[str, object]], None]) -> None:
        self._listeners.append(on_batch)

    def close(self) -> None:
        self._ending.set()
        self._engine.woken.set()
        self._thread.join()
        self._workers.close()
        self._engine.close()


def result_schema(query: Query) -> pa.Schema:
    """Return the columns of the rows that a subscription returns."""
    schema = pa.schema([pa.field(field.name, field.type) for field in query.output_schema])
    return schema.insert(1, pa.field("op", pa.string())) if query.root.is_stream else schema


class InProcessResults:
    """A subscription to what an engine in this process has answered. A cursor is `<place>.<rows read>`."""

    def __init__(
        self, engine: InProcessEngine, changed: threading.Condition, place: int, query: Query, request: ResultRequest
    ) -> None:
        self._engine = engine
        self._changed = changed
        self._place = place
        self._closed = False
        self._stream = query.root.is_stream
        self._schema = result_schema(query)
        known, tick = engine.answered(place)
        self._progress = request.progress
        #: How many rows are read, and up to which instant progress, where it ends with what there is now.
        self._until = (known, tick) if request.until_now else None
        self._read = 0 if request.beginning else known
        #: The instant up to which the answer has been said to be complete.
        self._reached: int | None = None
        if request.cursor is not None:
            self._read = self._number(request.cursor, known)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def cursor(self) -> str:
        return f"{self._place}.{self._read}"

    def _number(self, cursor: str, known: int) -> int:
        place, _, number = cursor.partition(".")
        if place != str(self._place) or not (number.isascii() and number.isdecimal()) or int(number) > known:
            raise PenstockError("P0712", f"{cursor[:100]!r} is no cursor of this query", hint="read from the beginning")
        return int(number)

    def next(self, seconds: float) -> ResultPart | None:
        with self._changed:
            part = None if self._closed else self._part()
            if part is None and self._until is not None and not self._closed:
                raise EndOfResults
            if part is None:
                self._changed.wait_for(lambda: self._closed or self._is_due(), seconds)
                part = None if self._closed else self._part()
            return part

    def on_change(self, listener: Callable[[], None]) -> None:
        return None

    def _answered(self) -> tuple[int, int | None]:
        return self._until or self._engine.answered(self._place)

    def _is_due(self) -> bool:
        count, tick = self._answered()
        return self._read < count or self._is_progress(tick)

    def _is_progress(self, tick: int | None) -> bool:
        return self._progress and tick is not None and (self._reached is None or tick > self._reached)

    def _part(self) -> ResultPart | None:
        """Return the next rows of answers, else a row of progress; None where neither is due."""
        count, tick = self._answered()
        if self._read < count:
            table = self._engine.answer(self._place, self._read, count)
            self._read += table.num_rows
            if self._stream:
                table = table.add_column(1, "op", pa.repeat(pa.scalar("+", pa.string()), table.num_rows))
            rows = pa.table(table.columns, schema=self._schema)
        elif tick is not None and self._is_progress(tick):
            self._reached = tick
            rows = result_row(self._schema, tick, "p")
        else:
            return None
        return ResultPart(rows.combine_chunks().to_batches()[0], self.cursor)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
