"""The engine's side of a server on Spark: results from the log of the run, its metrics and its progress."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.query import Query, Start
from penstock.connectors.results.result_folder import ResultFolder
from penstock.control.spark import SparkEngine
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.language.commands import SelectOnce
from penstock.physical.execution.flow_counts import TappedPort
from penstock.results.cancellation import Cancellation
from penstock.results.content import ResultContents
from penstock.results.live_state import LiveState, ResultElements
from penstock.results.reader import ResultReader, Subscription, reader_schema
from penstock.results.run_input import has_read, pinned_input, state_of_run
from penstock.results.select import LiveReader
from penstock.results.select_workers import SelectWorkers
from penstock.runtime.local.explain import explain
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.spark.catching_up.start_options import WAYS, StartOption, text_of
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.job import SparkRun
from penstock.runtime.spark.live_change import options_of_start
from penstock.runtime.watching.taps import Tap
from penstock.server.service import EndOfResults, ResultPart, ResultRequest
from penstock.server.statements.selecting import ANSWERS, SelectedRows, SelectScope, check_readable, whole_inputs
from penstock.storage.documents import Document
from penstock.types import END

LOG = logger_of("server")
#: Seconds between two looks at whether a batch has ended, and number of looks with one question to Spark whether the
#: run is active: a call of the JVM, which costs more than a look.
_LOOK, _ASKED_EVERY = 0.2, 5
#: The same, of a SELECT that waits for one.
_SOON = 0.02


class SparkSide:
    """See the contract `EngineSide`. folder: of the checkpoint; workers: compute one-time queries, end with this."""

    def __init__(
        self, engine: SparkEngine, folder: Path, workers: SelectWorkers, contents: ResultContents | None = None
    ) -> None:
        self._engine = engine
        self._workers = workers
        self._contents = contents or guarded_contents(folder)
        self._posted = folder / "control" / "kept"
        self._results = Folder(folder / "penstock").results
        self._listeners: list[Callable[[Mapping[str, object]], None]] = []
        #: Number of batches, and when the last one ended or there was nothing to read.
        self._batches, self._at = 0, time.monotonic()
        #: The error that has been logged.
        self._told: PenstockError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-batches", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        asked: SparkRun | None = None
        active = False
        for look in count():
            if self._ending.wait(_LOOK):
                return
            run = self._engine.run
            if run is not None and (run is not asked or look % _ASKED_EVERY == 0):
                asked, active = run, run.active
            if run is None or not active:
                self._tell_failure(None if run is None else run.error)
                continue
            # Looked at all the time, so it must not cost anything for each query.
            if run.batches == self._batches:
                self._at = self._at if run.rounds is not None and run.rounds.unread() else time.monotonic()
                continue
            sums = run.sums()
            self._batches, self._at = sums.batches, time.monotonic()
            content = {
                "number": sums.batches, "version": run.epoch.number, "rows_in": sums.rows_in,
                "rows_out": sums.rows_out, "heartbeat": sums.heartbeat,
            }  # fmt: skip
            for listener in self._listeners:
                listener(content)

    def _tell_failure(self, error: PenstockError | None) -> None:
        """Log the error that has ended the run, once, with its cause."""
        if error is None or error is self._told:
            return
        self._told = error
        log_event(
            LOG, logging.ERROR, "failed", f"the run has ended with {error.code}: {error.message}", error.cause,
            error=error.code, hint=error.hint,
        )  # fmt: skip

    # -- reading -----------------------------------------------------------------------------------------------

    def results(self, place: int, query: Query, request: ResultRequest) -> SparkResults:
        run, name = self._running(), f"q{place}"
        sink, id_ = run.sinks.get(name), run.version().results.get(name)
        if sink is not None and sink.own_place is not None:
            reader = ResultReader(sink.own_place.folder, sink.own_place.id, self._contents)
        elif sink is None and id_ is not None and query.sink.connector == "RESULTS":
            # It is paused, and its result stays.
            reader = ResultReader(self._results, id_, self._contents)
        else:
            message = f"the results of {query.name} are not kept here"
            raise PenstockError("P0711", message, hint="INTO names where its results are")
        cursor = reader.first if request.beginning else request.cursor
        subscription = reader.read(
            cursor, snapshot=request.snapshot, progress=request.progress, up_to=request.up_to,
            until_now=request.until_now, after=request.after,
        )  # fmt: skip
        return SparkResults(reader, subscription, request.snapshot)

    def result_schema(self, query: Query) -> pa.Schema:
        return reader_schema(query.output_schema, query.root.is_stream)

    def _running(self) -> SparkRun:
        run = self._engine.run
        if run is None:
            raise PenstockError("P0711", "nothing runs yet, so there are no results")
        return run

    def select(
        self, command: SelectOnce, scope: SelectScope, statement: str, cancellation: Cancellation
    ) -> SelectedRows:
        run, read = self._engine.run, sources_of(command.query)
        whole = whole_inputs(command, scope, self._posted)
        if run is None or scope.is_control(command.query):
            check_readable(command, whole)
            state = LiveState(-1, None, whole=whole)
            reader = LiveReader(lambda: state) if scope.is_light(command.query) else self._reader(state)
            return SelectedRows.of(reader.answer(command.query, cancellation))
        places = {scope.queries[name.lower()][0] for name in read if name.lower() in scope.queries}
        self._await_first({f"q{place}" for place in places}, cancellation)
        with pinned_input(run, f"select-{statement}", {name.lower() for name in read}) as known:
            answers = {key: (f"q{scope.queries[key][0]}", scope.queries[key][1])
                       for name in read if (key := name.lower()) in scope.queries}  # fmt: skip
            state = state_of_run(run, known, answers, self._contents, self._left_of(run, answers))
            # What the run has read is as of its last batch, whatever else there is.
            whole = {name: rows for name, rows in whole.items() if name not in {**state.past, **state.updates}}
            state = replace(state, whole=whole)
            answer = self._reader(state).answer(command.query, cancellation)
        is_live = any(name.lower() not in whole for name in read)
        return SelectedRows.of(answer if is_live else replace(answer, staleness=None))

    def has_read(self, source: int, post: int) -> bool:
        run = self._engine.run
        return run is None or run.rounds is None or has_read(run, self._posted / str(source), source, post)

    def _left_of(self, run: SparkRun, queries: Mapping[str, tuple[str, Query]]) -> dict[str, ResultElements]:
        """Return what is left of the streams of queries that do not run, such as paused ones."""
        results, folder = run.version().results, ResultFolder.at(self._results)
        return {
            key: ResultElements(folder, results[name], folder.last, END)
            for key, (name, query) in queries.items()
            if query.root.is_stream and query.sink.connector == ANSWERS and name in results and name not in run.sinks
        }

    def _await_first(self, queries: set[str], cancellation: Cancellation) -> None:
        """Wait for the first batch of queries that have read their past: the answer that they begin with is in it."""
        while (run := self._engine.run) is not None and run.active and not queries.isdisjoint(run.epoch.backfill):
            if Folder(run.checkpoint / "penstock").delivered().batch >= run.epoch.base or cancellation.wait(_SOON):
                break
        cancellation.check()

    def _reader(self, state: LiveState) -> LiveReader:
        # What is larger than that is computed elsewhere.
        memory = self._workers.memory if self._workers.larger is None else None
        return LiveReader(lambda: state, self._workers, memory, timeout=self._workers.timeout)

    def explain(self, query: Query, form: str) -> str:
        return explain(query, form)

    def explain_start(self, query: Query) -> str:
        return text_of(options_of_start(self._running(), query))

    def starts(self, query: Query) -> Sequence[Document]:
        run = self._engine.run
        if run is None:
            # Nothing has been read of any source.
            return [StartOption(Start(mode), {}).as_json() for mode in WAYS]
        return [option.as_json() for option in options_of_start(run, query)]

    def batch(self) -> tuple[int, float | None]:
        return self._batches, None if self._engine.run is None else time.monotonic() - self._at

    def problem(self) -> str | None:
        run = self._engine.run
        if run is None or run.active:
            return None
        return "the run has ended" if run.error is None else f"the run failed: {run.error.code}"

    def ended_by(self) -> PenstockError | None:
        run = self._engine.run
        # Spark is asked again only where the thread has seen an error.
        return None if run is None or self._told is None or run.active else run.error

    def tap(self, edge: TappedPort, rows: int) -> Tap:
        return self._engine.tap(edge, rows)

    def listen(self, on_batch: Callable[[Mapping[str, object]], None]) -> None:
        self._listeners.append(on_batch)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        self._workers.close()
        self._engine.close()
        self._contents.close()


def guarded_contents(checkpoint: Path) -> ResultContents:
    """Return the contents of the relations whose results a checkpoint keeps, which outlast the rows of these results.
    To be called before the run starts, which removes rows."""
    contents = ResultContents(Folder(checkpoint / "penstock").results)
    contents.guard()
    return contents


class SparkResults:
    """A subscription to the log of results."""

    def __init__(self, reader: ResultReader, subscription: Subscription, snapshot: bool) -> None:
        self._reader = reader
        self._subscription = subscription
        self._snapshot = snapshot

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    @property
    def cursor(self) -> str | None:
        return None if self._snapshot else str(self._subscription.cursor)

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
