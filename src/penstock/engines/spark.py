"""The engine of a server: one run on Spark whose sources and queries change while it runs.

A query has the name `q<place>` there, so that its files go by a number that is never used again. What this engine
cannot do is refused before a command is accepted: a start whose past is not kept, and a relation whose result would go
on although its content is not known any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import AwaitedRows
from penstock.connectors.results.result_folder import ResultFolder
from penstock.control.engine import (
    Activity,
    ControlEnds,
    EngineFigures,
    EngineHealth,
    EngineListener,
    EngineVersion,
    NextVersion,
    Preparation,
    SelectScope,
    StandingQuery,
    not_kept_here,
    nothing_runs,
    with_instants,
)
from penstock.control.life.reconcile import Difference, difference
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.language.binder.from_.answers import ANSWERS
from penstock.physical.elements import Elements
from penstock.physical.execution.flow_counts import TappedPort
from penstock.physical.execution.progress import NOTHING, timed_sources
from penstock.physical.execution.step_failures import with_names
from penstock.results.cancellation import Cancellation
from penstock.results.emitted import EmittedContents
from penstock.results.live_state import LiveState, ResultElements
from penstock.results.reader import ResultReader
from penstock.results.result_source import LoggedResults, ResultRequest
from penstock.results.run_input import has_read, pinned_input, state_of_run
from penstock.results.select import LiveAnswer, LiveReader
from penstock.results.select_workers import SelectWorkers
from penstock.runtime.live.starts import StartOption, starts_by
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.runtime.monitoring.taps import Tap
from penstock.runtime.spark.changes.interrupted_reading import InterruptedReading
from penstock.runtime.spark.changes.prefetch import Prefetch
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.planning_cache import PlanningCache
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.hydration.past_input import ReadTicks
from penstock.runtime.spark.hydration.present_updates import present_updates
from penstock.runtime.spark.hydration.start_options import heartbeat_at
from penstock.runtime.spark.job import SparkRun
from penstock.runtime.spark.launch import launch
from penstock.runtime.spark.live_change import change, hydrate, option_of_start, options_of_start, rows_awaited
from penstock.runtime.spark.output.withheld import WithheldAnswers
from penstock.runtime.spark.retention.retained_log import RetainedLog
from penstock.runtime.spark.version import VersionInfo, stored_version
from penstock.runtime.spark.work import Work
from penstock.runtime.spark.worker.tapped import publish_taps
from penstock.types import END

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logger_of("server")
#: Seconds between two looks at whether a batch has ended, and number of looks with one check whether the run is active:
#: a call of the JVM, which costs more than a look.
_LOOK, _CHECKED_EVERY = 0.2, 5
#: The same, of a SELECT that waits for one.
_SOON = 0.02
_PREFIX = "q"
#: The state, in the record of a version, of a command before its last one that it does not contain.
WAITING = "WAITING"


class SparkPreparation:
    """See the contract `Preparation`. readings: those beside the run, of which this is one."""

    def __init__(self, reading: InterruptedReading, readings: list[InterruptedReading]) -> None:
        self.reading = reading
        self._readings = readings
        readings.append(reading)

    def read(self) -> None:
        self.reading.read()

    def shares(self) -> Mapping[int, float]:
        return {_place(name): share for name, share in self.reading.shares().items()}

    def end(self) -> None:
        self.reading.end()

    def discard(self) -> None:
        self.reading.release()
        if self.reading in self._readings:
            self._readings.remove(self.reading)


class SparkEngine:
    """See the contract `Engine`.

    Args:
        checkpoint: of the run; it begins or resumes with the first change.
        spark: returns the session, called when it is needed.
        workers: compute one-time queries, end with this.
    """

    def __init__(
        self, checkpoint: Path, spark: Callable[[], SparkSession], workers: SelectWorkers | None = None
    ) -> None:
        self._checkpoint = checkpoint
        self._folder = Folder(checkpoint / "penstock")
        self._spark = spark
        self._workers = workers or SelectWorkers()
        #: None before the first change.
        self.run: SparkRun | None = None
        self._lock = threading.Lock()
        self._version = NextVersion(0)
        self._listener = EngineListener()
        #: The readings of a past beside the run; one at a time has the turn.
        self._readings: list[InterruptedReading] = []
        self._turn = threading.Lock()
        self._contents = EmittedContents(self._folder)
        #: The ticks in retained files, as far as queries have waited for rows.
        self._counts: ReadTicks = {}
        #: By place, the query as its user calls it, and as the run does.
        self._by_place: dict[int, tuple[Query, Query]] = {}
        #: Number of batches, and when the last one ended or there was nothing to read.
        self._batches, self._at = 0, time.monotonic()
        #: The error that has been logged.
        self._logged: PenstockError | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self, version: NextVersion) -> None:
        standing_before = self._version.standing
        due = difference(version, standing_before)
        for place in (*due.begun, *due.moved):
            standing = version.queries[place]
            query = standing.query
            if query is None or standing.activity is not Activity.RUNNING:
                continue
            if not query.root.is_stream and place in standing_before and not standing.reset:
                self._check_content(place, query)
            if place in due.begun:
                self._check_start(query, standing.start)

    def awaited(self, query: Query) -> AwaitedRows | None:
        run = self.run
        if run is None or not self._version.declares(timed_sources(query.root)):
            return None
        found = rows_awaited(run, query, self._counts)
        if found is None or found.tick is not None:
            self._counts = {}
        return found

    def start_option(self, query: Query, start: Start) -> StartOption:
        run = self.run
        if run is None or not self._version.declares(timed_sources(query.root)):
            return StartOption(start, {})  # a source that nothing has read yet begins with the query
        return option_of_start(run, query, start)

    def starts(self, query: Query) -> Sequence[StartOption]:
        run = self.run
        if run is None:
            return starts_by(lambda start: StartOption(start, {}))
        return options_of_start(run, query)

    def prepare(self, version: NextVersion) -> Preparation | None:
        run = self.run
        if run is None or not run.is_live:
            return None
        added = {place: version.queries[place] for place in difference(version, self._version.standing).changed}

        def begin() -> Prefetch | None:
            """Other versions may have come since."""
            queries = {**self._version.queries, **added}
            sources = {**self._version.sources, **version.sources}
            whole = replace(version, queries=queries, sources=sources)
            work = self._work(whole, difference(whole, self._version.standing))
            try:
                return hydrate(self._folder, run, work)
            except PenstockError as error:
                raise _named(error, queries) from error

        share = float(version.settings["hydrate_share"])
        return SparkPreparation(InterruptedReading(begin, share, lambda: run.busy, self._turn), self._readings)

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        own = prepared.reading if isinstance(prepared, SparkPreparation) else None
        with self._lock, suspended([one for one in self._readings if one is not own]):
            due = difference(version, self._version.standing)
            work = self._work(version, due)
            try:
                if self.run is None:
                    # The taps of a former run have ended.
                    publish_taps(self._folder.root, frozenset())
                    self.run = launch(work, str(self._checkpoint), False, self._failed)
                else:
                    change(self.run, work, False, None if own is None else own.take())
            except Exception as error:
                if self.run is not None and (failure := self.run.error) is not None:
                    # Not an error of the version: what has been accepted waits for the next start.
                    raise ControlEnds(f"the run has ended with {failure.code}: {failure.message}") from failure
                if isinstance(error, PenstockError):
                    raise _named(error, version.queries) from error
                raise
            self._version = version
            if own is not None:
                own.release()
            if self.run.rounds is not None:
                self.run.rounds.steer(RateControl.of(work.settings, len(work.queries), work.latency_target))
        self._report_left_out(work, self.run)
        found = self.run.version()
        begun = _begun(version, due.changed, found.offset)
        waits = any(version.queries[place].start.wait for place in begun)
        next_version = _engine_version(found)
        begun = with_instants(begun, version, self._ahead() if waits else {}, next_version.sources)
        return replace(next_version, begun=begun)

    def version(self) -> EngineVersion:
        found = stored_version(self._checkpoint) if self.run is None else self.run.version()
        if found is None:
            return EngineVersion(0, 0)
        exchanging = self._exchanging(found)
        version = replace(_engine_version(found), ahead=self._ahead(), unseen=self._unseen(), exchanging=exchanging)
        rounds = None if self.run is None else self.run.rounds
        kept = {} if rounds is None else rounds.punctuations()
        return replace(version, punctuations={name.lower(): count for name, count in kept.items()})

    def figures(self) -> EngineFigures:
        run = self.run
        if run is None:
            return EngineFigures()
        figures = run.recorder.figures()
        retained = {}
        for source in run.job.intake.sources:
            if source.retain is not None:
                log = RetainedLog(self._folder, source_file(source.name, run.job.intake.births))
                retained[source.name.lower()] = log.nbytes, log.after
        names = [*run.job.plan.queries, *(figures.plan.queries if figures.plan is not None else ())]
        places = {name: _place(name) for name in names}
        return EngineFigures(run.metrics(), figures, places, retained, run.dead_letters)

    def listen(self, listener: EngineListener) -> None:
        self._listener = listener

    def tap(self, edge: TappedPort, rows: int) -> Tap:
        run = self.run
        if run is None:
            raise nothing_runs()
        run.recorder.taps.publish = partial(publish_taps, self._folder.root)
        return run.recorder.taps.begin(edge, rows)

    def wake(self) -> None:
        """The run looks for posted rows by itself."""

    def unread(self) -> int:
        run = self.run
        if run is None or run.rounds is None:
            return 0
        posted = {source.name for source in run.work.sources.values() if source.connector == "POSTED"}
        return sum(size for name, size in run.rounds.unread().items() if name in posted)

    def updates(self, source: Source) -> Sequence[Elements] | None:
        run = self.run
        if run is None or run.rounds is None:
            return None
        return present_updates(self._folder, run.job.intake, run.rounds, run.relations, source.name)

    def has_read(self, source: int, post: int) -> bool:
        return self.run is None or has_read(self.run, source, post)

    def results(self, place: int, query: Query, request: ResultRequest) -> LoggedResults:
        run, name = self.run, _name(place)
        if run is None:
            raise nothing_runs()
        sink, id_ = run.sinks.get(name), run.version().results.get(name)
        logged = None if sink is None else sink.own_place
        if logged is not None:
            folder, id_ = logged.folder, logged.id
        elif sink is None and id_ is not None and query.sink.connector == ANSWERS:
            folder = self._folder.results  # it is paused, and its result stays
        else:
            raise not_kept_here(query)
        return LoggedResults(ResultReader(folder, id_, self._contents.results, query.name), request)

    def select(self, query: OneTimeQuery, scope: SelectScope, statement: str, cancellation: Cancellation) -> LiveAnswer:
        run = self.run
        if run is None or scope.is_control:
            state = LiveState(-1, None, whole=scope.whole)
            reader = LiveReader(lambda: state) if scope.is_light else self._workers.reader(state)
            return reader.answer(query, cancellation)
        read = {name.lower() for name in sources_of(query)}
        answers = {key: (_name(place), one) for key, (place, one) in scope.queries.items()}
        self._await_first({name for name, _ in answers.values()}, cancellation)
        with pinned_input(run, f"select-{statement}", read) as known:
            state = state_of_run(run, known, answers, self._contents.results, self._left_of(run, answers))
            # What the run has read is as of its last batch, whatever else there is.
            whole = {name: rows for name, rows in scope.whole.items() if name not in {**state.past, **state.updates}}
            delivered = state.delivered if read - whole.keys() else None
            state = replace(state, whole=whole, delivered=delivered)
            return self._workers.reader(state).answer(query, cancellation)

    def _left_of(self, run: SparkRun, queries: Mapping[str, tuple[str, Query]]) -> dict[str, ResultElements]:
        """Return what is left of the streams of queries that do not run, such as paused ones."""
        results, folder = run.version().results, ResultFolder.at(self._folder.results)
        return {
            key: ResultElements(folder, results[name], folder.last, END)
            for key, (name, query) in queries.items()
            if query.root.is_stream and query.sink.connector == ANSWERS and name in results and name not in run.sinks
        }

    def _await_first(self, queries: set[str], cancellation: Cancellation) -> None:
        """Wait for the first batch of queries that have read their past: the answer that they begin with is in it."""
        while (run := self.run) is not None and run.active and not queries.isdisjoint(run.epoch.backfill):
            if self._folder.delivered().batch >= run.epoch.base or cancellation.wait(_SOON):
                break
        cancellation.check()

    def health(self) -> EngineHealth:
        run = self.run
        if run is None:
            return EngineHealth(self._batches)
        problem = None
        if not run.active:
            problem = "the run has ended" if run.error is None else f"the run failed: {run.error.code}"
        return EngineHealth(self._batches, time.monotonic() - self._at, problem)

    def ended_by(self) -> PenstockError | None:
        run = self.run
        # The state of Spark is read again only where the thread has seen an error.
        return None if run is None or self._logged is None or run.active else run.error

    def serve(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="penstock-batches", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        """Look for batches that have been delivered, and for the end of the run."""
        checked: SparkRun | None = None
        active = False
        for look in count():
            if self._ending.wait(_LOOK):
                return
            run = self.run
            if run is not None and (run is not checked or look % _CHECKED_EVERY == 0):
                checked, active = run, run.active
            if run is None or not active:
                self._log_failure(None if run is None else run.error)
                continue
            # Looked at all the time, so it must not cost anything for each query.
            if run.batches == self._batches:
                self._at = self._at if run.rounds is not None and run.rounds.unread() else time.monotonic()
                continue
            sums = run.sums()
            self._batches, self._at = sums.batches, time.monotonic()
            self._listener.delivered(
                {
                    "number": sums.batches,
                    "version": run.epoch.number,
                    "rows_in": sums.rows_in,
                    "rows_out": sums.rows_out,
                    "heartbeat": sums.heartbeat,
                }
            )

    def _log_failure(self, error: PenstockError | None) -> None:
        """Log the error that has ended the run, once, with its cause."""
        if error is None or error is self._logged:
            return
        self._logged = error
        log_event(
            LOG,
            logging.ERROR,
            "failed",
            f"the run has ended with {error.code}: {error.message}",
            error.cause,
            error=error.code,
            hint=error.hint,
        )

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._workers.close()
        if self.run is not None:
            self.run.stop()
            self.run = None
        self._contents.close()

    def _ahead(self) -> dict[int, int]:
        """Return by place the first instant of queries that have not reached it."""
        if self.run is None or not self.run.epoch.shown:
            return {}
        kept, batch = WithheldAnswers(self._folder), self._folder.delivered().batch + 1
        found = {name: kept.read(name, since, batch) for name, since in self.run.epoch.shown.items()}
        return {
            _place(n): withheld.first for n, withheld in found.items() if withheld is not None and not withheld.done
        }

    def _exchanging(self, found: VersionInfo) -> frozenset[int]:
        """Return the places of streams of which instants still go to the sinks that they had before an exchange."""
        if self.run is None:
            return frozenset()
        routes = self.run.epoch.routes.items()
        return frozenset(
            _place(name) for name, route in routes if any(tick > found.queries.get(name, tick - 1) for tick, _ in route)
        )

    def _unseen(self) -> dict[int, dict[str, int]]:
        """Return by place and source up to which tick a query did not see elements."""
        if self.run is None:
            return {}
        epoch = self.run.epoch
        maturity = epoch.maturity
        begun = {name: maturity.get(record.birth) for name, record in epoch.queries.items()}
        return {_place(name): dict(one.ahead) for name, one in begun.items() if one is not None and one.ahead}

    # -- from a version to the work of a run -------------------------------------------------------------------

    def _work(self, version: NextVersion, due: Difference) -> Work:
        """Return the work of a run. due: what the version changes."""
        standing = [one for one in version.queries.values() if one.activity is not Activity.PAUSED]
        self._by_place = {
            one.place: self._by_its_place(one.place, one.query) for one in standing if one.query is not None
        }
        queries = [named for _, named in self._by_place.values()]
        paused = frozenset(_name(place) for place, one in version.queries.items() if one.activity is Activity.PAUSED)
        silent = frozenset(_name(place) for place, one in version.queries.items() if one.activity is Activity.SILENT)
        # What stands goes on from its checkpoint.
        begun = () if self.run is None else due.begun
        return Work(
            tuple(queries),
            {},
            {},
            version.settings,
            False,
            self._spark,
            live=True,
            standing=True,
            declared={one.source.name: one.source for one in version.sources.values()},
            heartbeats={
                one.source.name: one.heartbeats for one in version.sources.values() if one.heartbeats is not None
            },
            starts={_name(place): version.queries[place].start for place in begun},
            paused=paused,
            silent=silent,
            moved={_name(place): _name(former) for place, former in due.moved.items()},
            pause_failed=True,
            in_step=frozenset(_name(p) for p, former in version.in_step.items() if due.moved.get(p) == former),
            command=version.command,
            reset=frozenset(_name(one.place) for one in standing if one.reset),
            outcomes={str(number): WAITING for number in sorted(version.waiting)},
            contents=self._contents.read,
            weights={_name(one.place): one.weight for one in standing if one.weight != 1},
            latency_targets={_name(one.place): one.latency_target for one in standing if one.latency_target},
            sink_retries={_name(one.place): one.sink_retry for one in standing if one.sink_retry is not None},
            result_limits={_name(one.place): one.result_limit for one in standing if one.result_limit is not None},
            on_batch=self._note,
            cache=PlanningCache() if self.run is None else self.run.work.cache,
        )

    def _by_its_place(self, place: int, query: Query) -> tuple[Query, Query]:
        """Return a query, and the same by the name that the run has for it: the same object from version to version, by
        which the run sees that nothing of it changes."""
        known = self._by_place.get(place)
        return known if known is not None and known[0] is query else (query, replace(query, name=_name(place)))

    def _check_content(self, place: int, query: Query) -> None:
        """Raise PenstockError P0703 where the content of a relation is not known whose result is to continue."""
        result = None if self.run is None else self.run.version().results.get(_name(place))
        if result is None:
            return
        try:
            self._contents.read(result)
        except PenstockError as error:
            message = f"query {query.name} cannot continue its result: {error.message}"
            raise PenstockError("P0703", message, hint="RESET begins the result again") from error

    def _check_start(self, query: Query, start: Start) -> None:
        """Raise PenstockError P0703 where the past that a query begins with is not kept."""
        obstacles = self.start_option(query, start).obstacles
        if obstacles:
            now = start.mode is StartMode.NOW
            hint = "declare the relation again, together with the query" if now else "START NOW"
            if start.mode is StartMode.WARM and not start.wait:
                hint = "START NOW begins with empty windows, START WARM WAIT when nothing is missing any more"
            message = f"query {query.name} cannot START {start.words}: {'; '.join(obstacles)}"
            raise PenstockError("P0703", message, hint=hint)

    # -- failures ----------------------------------------------------------------------------------------------

    def _failed(self, name: str, error: PenstockError) -> None:
        self._listener.failed(_place(name), _named(error, self._version.queries))

    def _note(self, batch: BatchFigures) -> None:
        self._listener.batch(batch, {name: _place(name) for name in batch.rows_out})

    def _report_left_out(self, work: Work, run: SparkRun) -> None:
        """Report the queries that the run leaves out because they failed before this start."""
        there = {query.name for query in run.work.queries}
        for query in work.queries:
            if query.name not in there:
                error = PenstockError("P0601", "the query failed before the last start", hint="RESUME begins it again")
                self._failed(query.name, error)


@contextmanager
def suspended(readings: Collection[InterruptedReading]) -> Iterator[None]:
    """Have readings stop for a change."""
    try:
        for reading in readings:
            reading.suspend()
        yield
    finally:
        for reading in readings:
            reading.resume()


def _name(place: int) -> str:
    return f"{_PREFIX}{place}"


def _place(name: str) -> int:
    return int(name.removeprefix(_PREFIX))


def _engine_version(found: VersionInfo) -> EngineVersion:
    beats = {_place(name): tick for name, tick in found.queries.items()}
    waiting = frozenset(int(number) for number, state in found.outcomes.items() if state == WAITING)
    sources = {name.lower(): tick for name, tick in found.sources.items() if NOTHING < tick < END}
    rows = {_place(name): count for name, count in found.rows.items()}
    return EngineVersion(
        found.number, found.command, beats, waiting=waiting, sources=sources, rows=rows, batch=found.batch
    )


def _begun(version: NextVersion, places: Iterable[int], offset: Offset | None) -> dict[int, int]:
    """Return τ0 of the queries at some places, those left out whose time had not begun.

    offset: up to which the sources had been read when the version began.
    """
    queries = {place: version.queries[place] for place in places}
    running = {p: one.query for p, one in queries.items() if one.query is not None and one.activity is Activity.RUNNING}
    ticks = {} if offset is None else {place: heartbeat_at(query, offset) for place, query in running.items()}
    return {place: tick for place, tick in ticks.items() if tick != NOTHING}


def _named(error: PenstockError, queries: Mapping[int, StandingQuery]) -> PenstockError:
    """Return an error with the names of queries that their user knows."""
    named = with_names(error, {_name(p): one.query.name for p, one in queries.items() if one.query is not None})
    if named.code == "P0607":
        # Its hint is for a script that is run: at a server the same start is refused with this code.
        return PenstockError("P0703", named.message, named.position, "START NOW", named.cause)
    return named
